package faultnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Disk is a small file system that a test can fill up. A server whose data directory is on the disk
// then refuses batches until the test frees the disk.
type Disk struct{ dir string }

// MountDisk mounts a disk of this many MiB in memory at an existing directory. It needs Linux and the
// right to mount. The caller must close the disk.
func MountDisk(dir string, mib int) (*Disk, error) {
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "weir-faultnet", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount a small disk: %w: %s", err, out)
	}
	return &Disk{dir}, nil
}

func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// Fill writes a file until the disk is full.
func (d *Disk) Fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	for b := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(b)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

// Free removes the file that Fill wrote.
func (d *Disk) Free() error { return os.Remove(d.ballast()) }

// Close unmounts the disk. If a process still has files open on it, the disk is gone when the process
// closes them.
func (d *Disk) Close() error {
	if out, err := exec.Command("umount", "-l", d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unmount a small disk: %w: %s", err, out)
	}
	return nil
}
