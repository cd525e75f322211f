package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// machine describes the machine that figures come from.
type machine struct {
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	Kernel string `json:"kernel"`
}

func thisMachine(string) machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Kernel: strings.TrimSpace(string(kernel))}
}

func (m machine) String() string {
	return fmt.Sprintf("%d cores, %s, Linux %s", m.Cores, m.Go, m.Kernel)
}

// cpu returns the CPU time of this process, user and system.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap returns the size of the live heap after garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
