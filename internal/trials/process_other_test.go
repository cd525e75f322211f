//go:build !linux

package trials

import "os/exec"

// tie does nothing: only Linux can kill a process when the test exits.
func tie(*exec.Cmd) {}
