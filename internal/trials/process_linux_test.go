package trials

import (
	"os/exec"
	"syscall"
)

// tie makes the kernel kill a process when the test exits, even if the test is killed or times out.
func tie(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
