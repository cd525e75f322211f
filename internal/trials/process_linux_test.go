package trials

import (
	"os/exec"
	"syscall"
)

// tie lets a server die with the test, also when the test is killed or runs out of time.
func tie(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
