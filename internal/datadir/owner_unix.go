//go:build unix

package datadir

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// refuseForeign refuses to create files as root in a directory of another user, because the server
// that runs as that user could not open them. It accepts a missing directory, which has no owner.
func refuseForeign(dir string) error {
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
	return fmt.Errorf("%s belongs to %s, whose server could not open files created by root; run this command as %[2]s, for example: runuser -u %[2]s -- weir", dir, name)
}
