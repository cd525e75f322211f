//go:build !linux

package trials

import "os/exec"

// tie does nothing: only Linux can kill a process when the test exits.
func tie(*exec.Cmd) {}

// sockets returns 0: only Linux tells how many sockets a process has open.
func sockets(int) int { return 0 }
