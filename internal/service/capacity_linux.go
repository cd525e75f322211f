package service

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// systemMemory returns the memory of the machine, or the memory limit of the container or systemd
// unit if this limit is lower.
func systemMemory() int64 {
	total := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			total = min(total, groupMemory("/sys/fs/cgroup", path))
		}
	}
	return total
}

// groupMemory returns the lowest memory limit of a control group and its ancestors.
func groupMemory(root, path string) int64 {
	least := int64(math.MaxInt64)
	for ; ; path = filepath.Dir(path) {
		b, _ := os.ReadFile(filepath.Join(root, path, "memory.max"))
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			least = min(least, n)
		}
		if path == "/" || path == "." {
			return least
		}
	}
}
