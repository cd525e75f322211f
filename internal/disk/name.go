package disk

import (
	"io/fs"
	"strings"
)

// CheckName refuses what is not a plain file name: fs.ErrInvalid in a PathError. Both kinds of separator are refused
// everywhere, so that a name that one system takes is taken by all.
func CheckName(op, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}
