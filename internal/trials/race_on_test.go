//go:build race

package trials

// raceEnabled is true if the tests run under the race detector. It is the default of -trials.race.
const raceEnabled = true
