//go:build race

package sim

// raced reports whether the race detector is on.
const raced = true
