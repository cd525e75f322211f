package service

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestGroupMemory(t *testing.T) {
	root := t.TempDir()
	put := func(dir, value string) {
		t.Helper()
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("system.slice", "1073741824")
	put("system.slice/weir.service", "max")
	put("small", "4096")
	for path, want := range map[string]int64{"/": math.MaxInt64, "/system.slice/weir.service": 1 << 30, "/small": 4096, "/gone/far": math.MaxInt64} {
		if got := groupMemory(root, path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
