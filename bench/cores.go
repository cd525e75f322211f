package main

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// cores is a set of processor cores.
type cores []int

// While these sets are not empty, servers start, and talk runs, on these cores only. A server that
// is started on one core sees a machine with one core.
var serverCores, generatorCores cores

// apart gives servers and the load generator a core each while it calls the function. It does
// nothing on a machine with a single core.
func apart(measure func() ([]row, error)) ([]row, error) {
	if runtime.NumCPU() < 2 {
		return nil, nil
	}
	serverCores, generatorCores = cores{0}, cores{1}
	defer func() { serverCores, generatorCores = nil, nil }()
	return measure()
}

// begin starts a server.
func begin(server *exec.Cmd) error {
	defer serverCores.use()()
	return server.Start() // a process inherits the cores of the thread that starts it
}

// use binds the goroutine to its thread, and the thread to the cores, until the caller calls the
// function back.
func (c cores) use() (back func()) {
	runtime.LockOSThread()
	if len(c) == 0 {
		return runtime.UnlockOSThread
	}
	var before, set unix.CPUSet
	unix.SchedGetaffinity(0, &before)
	for _, core := range c {
		set.Set(core)
	}
	unix.SchedSetaffinity(0, &set)
	return func() {
		unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}
