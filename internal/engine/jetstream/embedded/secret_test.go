package embedded

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
)

// Nodes with the same secret complete the TLS handshake on both sides. With different secrets the
// handshake fails, and so it does if one of the nodes was removed.
func TestSecret(t *testing.T) {
	for name, c := range map[string]struct {
		server, client string
		removed        string
		in             bool
	}{
		"the same":       {strings.Repeat("a", 32), strings.Repeat("a", 32), "", true},
		"different":      {strings.Repeat("a", 32), strings.Repeat("b", 32), "", false},
		"removed client": {strings.Repeat("a", 32), strings.Repeat("a", 32), "there", false},
		"removed server": {strings.Repeat("a", 32), strings.Repeat("a", 32), "here", false},
	} {
		t.Run(name, func(t *testing.T) {
			refused := func(name string) bool { return name == c.removed }
			here, err := mutual([]byte(c.server), "here", refused)
			if err != nil {
				t.Fatal(err)
			}
			there, err := mutual([]byte(c.client), "there", refused)
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			answer := make(chan error, 1)
			go func() {
				a, err := l.Accept()
				if err == nil {
					defer a.Close()
					err = tls.Server(a, here).Handshake()
				}
				answer <- err
			}()
			b, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			err = tls.Client(b, there).Handshake()
			b.Close()
			if served := <-answer; (err == nil && served == nil) != c.in {
				t.Errorf("client error: %v, server error: %v", err, served)
			}
		})
	}
	if _, err := mutual([]byte("short"), "", nil); err == nil || !strings.Contains(err.Error(), "at least 32") {
		t.Errorf("a short secret: %v, want an error", err)
	}
}
