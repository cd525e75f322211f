package datadir

import (
	"os"
	"path/filepath"
	"testing"

	"weir/internal/disk"
	"weir/internal/engine/journal"
)

// A repair was interrupted after it had repaired the journal and before it moved the damaged files
// away. The next repair moves these files to a new directory, although the journal is undamaged.
func TestRepairMovesFilesSetAside(t *testing.T) {
	data := t.TempDir()
	if _, err := disk.MakeDir(Journal(data)); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk.OS(Journal(data)), journal.Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(Journal(data), disk.AsidePrefix+"000000000007.seg")
	if err := os.WriteFile(left, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Repair(data, nil)
	if err != nil || len(r.Before.Damages) > 0 || r.Directory == "" {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	if b, err := os.ReadFile(filepath.Join(r.Directory, "000000000007.seg")); err != nil || string(b) != "damaged" {
		t.Errorf("the file in %s: %q, %v", r.Directory, b, err)
	}
	if _, err := os.Stat(filepath.Join(r.Directory, "format")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the file is still in the journal: %v", err)
	}
	if r, err = Repair(data, nil); err != nil || r.Directory != "" {
		t.Errorf("second repair: %+v, %v", r, err)
	}
}
