//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package disk

// WriteAt writes one buffer after another: these systems have no common call that takes an offset and many buffers.
func (f *osFile) WriteAt(off int64, bufs ...[]byte) error {
	for _, b := range bufs {
		n, err := f.f.WriteAt(b, off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// SyncData is a whole sync, which on macOS goes past the drive's cache.
func (f *osFile) SyncData() error { return f.f.Sync() }
