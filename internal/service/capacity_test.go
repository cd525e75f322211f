package service

import (
	"testing"

	"weir/internal/server"
)

func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		capacity
		segments, connections int
	}{
		{capacity{1024, 24 << 30}, 4, 1024 - 128 - 8},
		{capacity{1 << 20, 24 << 30}, 100, 24 << 30 / connectionRAM},
		{capacity{1 << 20, 1 << 30}, 100, 8192},
		{capacity{1024, 24 << 30}, 5000, fewest},
	} {
		if got := c.capacity.connections(c.segments); got != c.connections {
			t.Errorf("%+v with %d segments: %d connections, want %d", c.capacity, c.segments, got, c.connections)
		}
	}
	for _, c := range []capacity{{1 << 20, 256 << 20}, {20_000, 1 << 30}, {20_000, 24 << 30}, {1024, 1 << 62}} {
		if held := int64(c.window()) * int64(c.connections(0)); c.window() < server.LeastWindow || held > c.memory/2 {
			t.Errorf("%+v: a window of %d bytes and %d connections, more than half of the memory", c, c.window(), c.connections(0))
		}
	}
	for memory, want := range map[int64]int{1 << 30: 8192, 64 << 10: fewest, 1 << 62: mostSubscribers} {
		if got := (capacity{memory: memory}).subscribers(); got != want {
			t.Errorf("%d bytes of memory: %d subscriptions, want %d", memory, got, want)
		}
	}
	for memory, want := range map[int64]int64{4 << 30: 512 << 20, 64 << 10: leastIndex} {
		if got := (capacity{memory: memory}).index(); got != want {
			t.Errorf("%d bytes of memory: %d for the index, want %d", memory, got, want)
		}
	}
	for memory, want := range map[int64]int64{4 << 30: 256 << 20, 64 << 10: leastStates, 1 << 62: mostStates} {
		if got := (capacity{memory: memory}).states(); got != want {
			t.Errorf("%d bytes of memory: %d for states, want %d", memory, got, want)
		}
	}
	if c := thisCapacity(); c.files < fewest || c.memory < 16<<20 {
		t.Errorf("this machine has %+v", c)
	}
}
