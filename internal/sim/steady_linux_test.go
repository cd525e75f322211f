package sim

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// steadied is set in the environment of a worker that has called steady.
const steadied = "WEIR_SIM_STEADY"

const (
	// forever is how much longer than asked for the first threads of a worker may sleep.
	forever = 24 * time.Hour
	// usual is the same for the other threads. The runtime takes short naps while one thread waits for
	// another.
	usual = 50 * time.Microsecond
)

// steady starts this process again in such a way that one thread of the Go runtime, sysmon, sleeps
// forever. It would interrupt a goroutine that has run for ten milliseconds, even if the operating
// system ran something else meanwhile. Then others would go first, and the history would differ from
// that of other runs of the seed. Simulations do not need sysmon.
//
// sysmon sleeps between its checks, at first for 20 µs. It keeps the setting that the process had
// when sysmon started.
func steady() {
	if os.Getenv(steadied) != "" {
		setSlack(usual)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !setSlack(forever) {
		return
	}
	path, err := os.Executable()
	if err == nil {
		err = syscall.Exec(path, os.Args, append(os.Environ(), steadied+"=1"))
	}
	panic(err)
}

// setSlack sets how much longer than asked for this thread, and those that it starts, may sleep.
func setSlack(d time.Duration) bool {
	const setTimerSlack = 29 // PR_SET_TIMERSLACK
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, uintptr(d), 0)
	return errno == 0
}
