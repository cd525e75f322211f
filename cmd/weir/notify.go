package main

import (
	"net"
	"os"
	"strings"
)

// notify reports the state of the server to the service manager, if the variable NOTIFY_SOCKET is
// set. Systemd sets it for services with Type=notify. A failure is ignored.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if name, ok := strings.CutPrefix(path, "@"); ok { // an abstract socket
		path = "\x00" + name
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}
