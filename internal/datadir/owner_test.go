package datadir

import (
	"os"
	"strings"
	"testing"
)

// A command that runs as root must not create files in another user's directory, because that
// user's server could not open them.
func TestRefuseForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := refuseForeign(dir); err != nil {
		t.Errorf("own directory: %v", err)
	}
	if err := refuseForeign(dir + "/absent"); err != nil {
		t.Errorf("missing directory: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Skip(err)
	}
	if err := refuseForeign(dir); err == nil || !strings.Contains(err.Error(), "run this command as ") {
		t.Errorf("directory of another user: %v", err)
	}
}
