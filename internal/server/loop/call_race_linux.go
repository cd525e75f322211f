//go:build race || !(amd64 || arm64)

package loop

import "syscall"

// read and write call package syscall, which tells the race detector about the order of events:
// everything that a client did before it sent data happened before the server received the data.
func read(fd int, b []byte) (int, error) { return syscall.Read(fd, b) }

func write(fd int, b []byte) (int, error) { return syscall.Write(fd, b) }

func epollWait(epoll int, events []syscall.EpollEvent) (int, error) {
	return syscall.EpollWait(epoll, events, 0)
}
