package disk

import (
	"io/fs"
	"strings"
)

// CheckName returns fs.ErrInvalid in a PathError if name is not a plain file name. It refuses both
// kinds of path separator on every system, so that a name valid on one system is valid on all.
func CheckName(op, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}
