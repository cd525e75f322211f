//go:build race

package contract

// raceEnabled is so for tests under the race detector. Then the server is built with it too; -contract.race wants it in any case.
const raceEnabled = true
