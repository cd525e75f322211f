package durable

import (
	"runtime"
	"strings"
	"testing"

	"weir"
)

func TestFirstMessages(t *testing.T) {
	for _, c := range []struct {
		array string
		n     int64
		want  string // empty if there are fewer messages
	}{
		{`[{"a":[1,2]},"],",3]`, 1, `[{"a":[1,2]}]`},
		{`[{"a":[1,2]},"],",3]`, 2, `[{"a":[1,2]},"],"]`},
		{`[{"a":[1,2]},"],",3]`, 3, `[{"a":[1,2]},"],",3]`},
		{`[{"a":[1,2]},"],",3]`, 4, ``},
		{`[]`, 1, ``},
	} {
		stored := strings.Clone(c.array)
		got, ok := firstMessages([]byte(stored), c.n)
		if ok != (c.want != "") || string(got) != c.want || stored != c.array {
			t.Errorf("the first %d messages of %s are %s, %t; want %s", c.n, c.array, got, ok, c.want)
		}
	}
}

// However many messages the batch at the offset of a fork has, splitting it takes little memory
// besides a copy of the batch (D34).
func TestFirstMessagesMemory(t *testing.T) {
	array := []byte(`[1` + strings.Repeat(",1", weir.MaxBody/2-2) + `]`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, ok := firstMessages(array, weir.MaxBody/2-2); !ok {
		t.Error("messages are missing")
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 3*weir.MaxBody {
		t.Errorf("%d bytes allocated, want at most %d", spent, 3*weir.MaxBody)
	}
}
