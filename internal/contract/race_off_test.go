//go:build !race

package contract

// raceEnabled: the server is built with the race detector when the tests are.
const raceEnabled = false
