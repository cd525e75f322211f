package sim

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// steadied is set in the environment of a worker that has called steady.
const steadied = "WEIR_SIM_STEADY"

// slack is how much longer than asked for a thread of a worker may sleep. The runtime also takes
// short naps while it waits for other threads, so it must not be long.
const slack = 100 * time.Millisecond

// steady starts this process again with threads that sleep longer than they ask for. So the thread of
// the Go runtime that interrupts goroutines seldom runs. It interrupts a goroutine that has run for
// ten milliseconds, even if the operating system ran something else meanwhile. Others then go first,
// and the history differs from that of other runs of the seed. Simulations need no timers of the
// operating system, because their time is simulated.
func steady() {
	const setTimerSlack = 29 // PR_SET_TIMERSLACK; the new process keeps the setting
	if os.Getenv(steadied) != "" {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, uintptr(slack), 0); errno != 0 {
		return
	}
	path, err := os.Executable()
	if err == nil {
		err = syscall.Exec(path, os.Args, append(os.Environ(), steadied+"=1"))
	}
	panic(err)
}
