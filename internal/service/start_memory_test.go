package service_test

import (
	"runtime"
	"testing"
	"time"

	"weir/internal/service"
)

// When the server is ready, it frees the memory that only the start needed.
func TestReturnStartMemory(t *testing.T) {
	freed := make(chan struct{})
	runtime.AddCleanup(new([1 << 20]byte), func(c chan struct{}) { close(c) }, freed)
	service.ReturnStartMemory()
	select {
	case <-freed:
	case <-time.After(time.Minute):
		t.Error("memory that is not used any more was not freed")
	}
}
