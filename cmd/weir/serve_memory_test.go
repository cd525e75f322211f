package main

import (
	"runtime"
	"testing"
	"time"
)

// When the server is ready, it frees the memory that only the start needed.
func TestReturnStartMemory(t *testing.T) {
	freed := make(chan struct{})
	runtime.AddCleanup(new([1 << 20]byte), func(c chan struct{}) { close(c) }, freed)
	returnStartMemory()
	select {
	case <-freed:
	case <-time.After(time.Minute):
		t.Error("memory that is not used any more was not freed")
	}
}
