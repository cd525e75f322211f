package directory

import (
	"errors"
	"strings"
	"testing"
)

// The error about a file that is not a format is short, even if the file is binary.
func TestForeignFormat(t *testing.T) {
	err := new(Directory).ParseFormat("photo" + strings.Repeat("\x00", 4091))
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "photo") || len(err.Error()) > 300 {
		t.Errorf("error of %d bytes: %.300v", len(err.Error()), err)
	}
}
