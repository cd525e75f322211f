//go:build !linux

package sim

// steady does nothing: only Linux lets a process put off its timers.
func steady() {}
