package main

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// While they are not nil, servers start on serverCore, and talk runs on generatorCore. A server that
// is started on one core sees a machine with one core.
var serverCore, generatorCore *unix.CPUSet

// apart gives servers and the load generator a core each while it calls the function measure, and
// marks the results. It measures nothing if this process may use only one core.
func apart(measure func() ([]row, error)) ([]row, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil || allowed.Count() < 2 {
		return nil, err
	}
	var cores [2]unix.CPUSet
	for i, core := 0, 0; i < len(cores); core++ {
		if allowed.IsSet(core) {
			cores[i].Set(core)
			i++
		}
	}
	serverCore, generatorCore = &cores[0], &cores[1]
	defer func() { serverCore, generatorCore = nil, nil }()
	rows, err := measure()
	for i := range rows {
		rows[i].Apart = true
	}
	return rows, err
}

// begin starts a server.
func begin(server *exec.Cmd) error {
	return on(serverCore, server.Start) // a process inherits the cores of the thread that starts it
}

// on calls a function in a thread of its own, on the given core if it is not nil.
func on(core *unix.CPUSet, call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if core == nil {
		return call()
	}
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, core); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &before)
	return call()
}
