package main

import (
	"net"
	"os"
	"strings"
)

// notify tells the service manager how the server stands, where one asked to be told (NOTIFY_SOCKET, as systemd does for
// Type=notify). Nobody waits for it, and a failure changes nothing.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if name, ok := strings.CutPrefix(path, "@"); ok { // a socket without a file
		path = "\x00" + name
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}
