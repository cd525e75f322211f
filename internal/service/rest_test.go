package service

import "testing"

// The service returns memory to the system once after each burst of work, and never while the
// process allocates much.
func TestReturnsMemoryAtRest(t *testing.T) {
	const mib = 1 << 20
	var r rest
	for i, step := range []struct {
		use  memoryUse
		want bool
	}{
		{memoryUse{1000 * mib, 1300 * mib, 600 * mib}, false}, // the process has just started and allocated much
		{memoryUse{1001 * mib, 1300 * mib, 600 * mib}, true},
		{memoryUse{1002 * mib, 700 * mib, 600 * mib}, false}, // there is little memory to return
		{memoryUse{1003 * mib, 900 * mib, 600 * mib}, false}, // almost nothing was allocated since memory was last returned, so another collection would free little
		{memoryUse{2000 * mib, 1300 * mib, 600 * mib}, false},
		{memoryUse{3000 * mib, 1300 * mib, 600 * mib}, false}, // the process allocates much
		{memoryUse{3010 * mib, 1300 * mib, 600 * mib}, true},
		{memoryUse{3020 * mib, 1300 * mib, 600 * mib}, false},
		{memoryUse{3030 * mib, 1300 * mib, 600 * mib}, false},
		{memoryUse{3080 * mib, 1300 * mib, 600 * mib}, false},
		{memoryUse{3086 * mib, 1300 * mib, 600 * mib}, true}, // since memory was last returned, enough was allocated, a little at a time
	} {
		if got := r.due(step.use); got != step.want {
			t.Errorf("step %d: due is %v, want %v", i, got, step.want)
		}
	}
}

func TestMemoryUse(t *testing.T) {
	if u := thisMemoryUse(); u.allocated == 0 || u.mapped == 0 {
		t.Errorf("memory use is %+v", u)
	}
}
