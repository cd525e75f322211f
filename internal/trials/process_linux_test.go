package trials

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// tie makes the kernel kill a process when the test exits, even if the test is killed or times out.
func tie(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// sockets returns how many sockets a process has open.
func sockets(pid int) (n int) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
