package main

import (
	"os"
	"strings"
	"testing"
)

// Root is kept from making files that the server could not open.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := foreign(dir); err != nil {
		t.Errorf("one's own: %v", err)
	}
	if err := foreign(dir + "/absent"); err != nil {
		t.Errorf("absent: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Skip(err)
	}
	if err := foreign(dir); err == nil || !strings.Contains(err.Error(), "run this as ") {
		t.Errorf("another's: %v", err)
	}
}
