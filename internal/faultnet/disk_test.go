package faultnet_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"weir/internal/faultnet"
)

// A small disk fills up and is freed again.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	d, err := faultnet.MountDisk(dir, 6)
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	write := func() error { return os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600) }
	if err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write to a full disk: %v", err)
	}
	if err := d.Free(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("write to a disk with free space: %v", err)
	}
}
