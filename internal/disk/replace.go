package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file durably and atomically: after a crash the file has either its old content,
// or all of the new content. When Replace has returned nil, it has the new content.
func Replace(path string, content []byte, mode fs.FileMode) error {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	f, err := os.CreateTemp(dir, name+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return OS(dir).SyncDir()
}
