package trials

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"weir/internal/contract"
)

// If a client opens as many connections as it can, it gets at most three quarters of the
// connections that the server accepts in total. All clients together never use up the server's file
// descriptors: open connections keep working, the journal can create files, and the operator's
// commands work.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	s := confined(t, "ulimit -n 256", "--demo=false", "--rate-live", "0")
	p := newBystanders(t, s)
	get := fmt.Sprintf("GET /v1/streams/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", p.stream, liveKey)
	keep := func() {} // uses a connection that must stay open
	crowd := func(address string, n int) (in int) {
		t.Helper()
		from(t, address) // skips the test if this machine does not have the address
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		for range n {
			keep()
			c, err := d.Dial("tcp", s.host(false))
			if err != nil {
				continue
			}
			t.Cleanup(func() { c.Close() })
			fmt.Fprint(c, get)
			b := make([]byte, len("HTTP/1.1 200"))
			if n, _ := c.Read(b); strings.HasSuffix(string(b[:n]), "200") {
				in++
			}
		}
		return in
	}
	if in := crowd("127.0.0.2", 200); in < 30 || in > 96 {
		t.Errorf("one address got %d connections, want 30 to 96", in)
	}
	fresh := contract.NewT(t, s.target()) // the server still accepts connections from another address
	stream := fresh.CreateBody(`{"name":"fresh","mode":"raw"}`).ID
	// When the server needs room, it closes the connection that has been idle longest, if that was for
	// a second or more. So this one must not be idle for long, even on a slow machine.
	keep = func() { fresh.Stream(stream) }
	rest := 0
	for i := range 4 {
		rest += crowd(fmt.Sprintf("127.0.0.%d", 3+i), 50)
	}
	if rest < 10 || rest > 64 {
		t.Errorf("the other addresses got %d connections, want 10 to 64", rest)
	}
	for range 20 { // enough to fill several files of the journal
		fresh.Post(contract.NextPath(stream), contract.RawBody(contract.Filler(contract.BodyLimit))).Want(202)
	}
	if out, err := exec.Command(program(t), "project", "ls", "--data", s.data).CombinedOutput(); err != nil {
		t.Errorf("weir project ls: %v: %s", err, out)
	}
	p.progress(10)
	if !strings.Contains(s.logged(), "connections refused") || strings.Contains(s.logged(), "too many open files") {
		t.Errorf("the server's log must contain \"connections refused\" and not \"too many open files\":\n%s", s.logged())
	}
}
