//go:build unix

package main

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// foreign refuses to make files as root in a directory of another user: the server that runs as that user could not open
// them. What is not there yet belongs to nobody.
func foreign(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid == 0 {
		return nil
	}
	name := strconv.FormatUint(uint64(sys.Uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	return fmt.Errorf("%s belongs to %s, and what root makes in it the server could not open: run this as %s, as with runuser -u %s -- weir", dir, name, name, name)
}
