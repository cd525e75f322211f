package journal

import (
	"strings"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/enginetest"
)

// TestEngineSuite runs the engine test suite on real files, and on a disk that loses all unsynced
// data, or none of it.
func TestEngineSuite(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		enginetest.Run(t, func(t *testing.T) enginetest.Fixture {
			fs := disk.OS(t.TempDir())
			return fixture(t, func() disk.FS { return fs }, nil)
		})
	})
	for i, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
		if faulty.LeftOut(i) {
			continue
		}
		t.Run(loss.String(), func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T) enginetest.Fixture {
				fs := faulty.New()
				return fixture(t, func() disk.FS { return fs }, func() { fs = fs.Crash(loss, nil) })
			})
		})
	}
}

// fixture opens journals with small segments. So the suite fills and reclaims segments, and creates
// its many journals quickly. Cases that test the largest payloads need larger segments; fixture
// recognises these cases by name.
func fixture(t *testing.T, fs func() disk.FS, crash func()) enginetest.Fixture {
	size := int64(256 << 10)
	for _, large := range []string{"every_size", "value", "document", "longest_note"} {
		if strings.Contains(t.Name(), large) {
			size = 17 << 20
		}
	}
	open := func(t *testing.T) engine.Engine {
		t.Helper()
		j, err := Open(fs(), Options{SegmentSize: size})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	f := enginetest.Fixture{
		Open: open,
		Reopen: func(t *testing.T, e engine.Engine) engine.Engine {
			t.Helper()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t)
		},
	}
	if crash != nil {
		f.Crash = func(t *testing.T, e engine.Engine) engine.Engine {
			t.Helper()
			crash()
			e.Close()
			return open(t)
		}
	}
	return f
}
