//go:build !race

package faulty

// raced reports whether the race detector is on.
const raced = false
