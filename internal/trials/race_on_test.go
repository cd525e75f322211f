//go:build race

package trials

// raceEnabled is so for tests under the race detector. Then the server is built with it too; -trials.race wants it in any case.
const raceEnabled = true
