package trials

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/http2"

	"weir/internal/contract"
)

// lateness is the delay that a busy machine may add to a timeout.
const lateness = 25 * time.Second

// The server disconnects clients that are slow on purpose. These clients do not disturb the others.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--demo=false", "--write-timeout", "2s")
	p := newBystanders(t, s)
	a := &attack{T: t, s: s, p: p}
	a.slowHeaders()
	a.halfHeaders()
	a.slowBodies()
	a.noBodies()
	a.zeroWindows()
	p.progress(20)
	a.Wait()
	p.progress(2)
}

// attack is a set of hostile clients. Wait returns when the server has disconnected them all.
type attack struct {
	*testing.T
	sync.WaitGroup
	s *server
	p *bystanders
}

// slowHeaders sends header fields at one byte per second, or no byte at all.
func (a *attack) slowHeaders() {
	t, s, p, ctx := a.T, a.s, a.p, a.Context()
	post := "POST " + contract.NextPath(p.stream) + " HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 200)
	for range 40 {
		for _, proto := range []string{"", "http/1.1"} {
			c := s.dial(t, proto)
			a.Go(func() { trickle(ctx, c, post) })
			a.Go(func() { ending(t, c, 10*time.Second+lateness) })
		}
		silent := s.dial(t, "")
		a.Go(func() { ending(t, silent, 10*time.Second+lateness) })
	}
	for range 10 {
		for _, proto := range []string{"", "h2"} {
			c := s.dial(t, proto)
			io.WriteString(c, http2.ClientPreface)
			http2.NewFramer(c, nil).WriteSettings()
			a.Go(func() { trickle(ctx, c, "\x00\x10\x00\x01\x04\x00\x00\x00\x01"+strings.Repeat("x", 4000)) })
			a.Go(func() { ending(t, c, 35*time.Second+lateness) })
		}
	}
}

// halfHeaders opens as many HTTP/3 streams as the server allows and completes no request on them.
func (a *attack) halfHeaders() {
	t, s := a.T, a.s
	for range 10 {
		c, err := quic.DialAddr(t.Context(), s.host(true), &tls.Config{RootCAs: s.trust(t), NextProtos: []string{"h3"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.CloseWithError(0, "") })
		for range 1000 {
			str, err := c.OpenStream()
			if err != nil {
				break // the server allows no more streams
			}
			str.Write([]byte{1, 40, 0}) // the start of a HEADERS frame: it declares 40 bytes, and only one follows
		}
	}
}

// slowBodies sends bodies at one byte per second. The server must refuse them after 30 s.
func (a *attack) slowBodies() {
	t, s, p := a.T, a.s, a.p
	ctx, cancel := context.WithTimeout(a.Context(), 30*time.Second+2*lateness)
	t.Cleanup(cancel)
	for _, by := range contract.Transports {
		c := contract.NewT(t, s.over(t, by))
		a.Go(func() {
			body, more := io.Pipe()
			defer body.Close()
			go func() {
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for {
					if _, err := more.Write([]byte{'0'}); err != nil {
						return
					}
					<-tick.C
				}
			}()
			resp, err := c.Try(ctx, "POST", contract.NextPath(p.stream), func(r *contract.Request) {
				r.Header.Set("Content-Type", "application/json")
				r.Body, r.Length = body, 1000
			})
			if err != nil {
				// If sending the body fails, the client may return this error instead of the
				// server's response, so the test accepts it.
				t.Logf("%s: a slow body failed with %v", by.Name, err)
				if ctx.Err() != nil {
					t.Errorf("%s: the server kept waiting for a slow body", by.Name)
				}
				return
			}
			defer resp.Body.Close()
			if b := contract.ReadAll(resp); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), "did not arrive in time") {
				t.Errorf("%s: a slow body got %d %s, want 400 because it did not arrive in time", by.Name, resp.StatusCode, b)
			}
		})
	}
}

// noBodies sends requests that declare a body, and never sends the body. The server can refuse
// these requests from their header fields alone, so it must not wait for the body.
func (a *attack) noBodies() {
	t, s, p := a.T, a.s, a.p
	for _, odd := range []string{"", "Te: trailers\r\n"} { // a request with Te takes another code path in the server
		for _, proto := range []string{"", "http/1.1"} {
			for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
				c := s.dial(t, proto)
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s%s\r\n\r\n", contract.NextPath(p.stream), odd, length)
				a.Go(func() {
					if said := ending(t, c, 30*time.Second+lateness); !strings.HasPrefix(said, "HTTP/1.1 401 ") {
						t.Errorf("a request without key and body (%q, %q) got %q, want 401", odd, length, contract.Shorten(said))
					}
				})
			}
		}
	}
}
