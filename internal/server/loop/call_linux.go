//go:build !race && (amd64 || arm64)

package loop

import (
	"syscall"
	"unsafe"
)

// The functions in this file do not tell the scheduler about the system call, because the call never
// blocks. Telling the scheduler takes time, and wakes the thread that watches it. read and write use
// the system calls for sockets, which take less time than those for files.

func read(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return result(n, errno)
}

func write(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_NOSIGNAL, 0, 0)
	return result(n, errno)
}

// epollWait gets the events that have happened. It does not wait for more.
func epollWait(epoll int, events []syscall.EpollEvent) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return result(n, errno)
}
