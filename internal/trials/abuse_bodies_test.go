package trials

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/contract"
)

// Some clients send bodies that are designed to be expensive to check. The server refuses or stores
// these bodies like any others, and other clients notice nothing.
func TestBodyBombs(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--demo=false", "--rate-live", "0")
	p := newBystanders(t, s)
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"bombs"}`).ID
	names := func() string {
		var b strings.Builder
		b.WriteString(`{"events":[{`)
		for i := 0; b.Len() < contract.BodyLimit-100; i++ {
			fmt.Fprintf(&b, `"%x":0,`, i)
		}
		return b.String() + `"last":0}]}`
	}
	bombs := map[string]struct {
		body   string
		status int
	}{
		"zeros":          {`{"events":[` + strings.Repeat("0,", (contract.BodyLimit-20)/2) + `0]}`, 202},
		"bytes of zero":  {strings.Repeat("\x00", contract.BodyLimit), 400},
		"nesting":        {`{"events":[` + strings.Repeat("[", contract.BodyLimit-20), 400},
		"closed nesting": {`{"events":[` + strings.Repeat("[", 3<<20) + strings.Repeat("]", 3<<20) + `]}`, 400},
		"a long string":  {`{"events":["` + strings.Repeat("x", contract.BodyLimit-20) + `"]}`, 202},
		"escapes":        {`{"events":["` + strings.Repeat(`\u0000`, (contract.BodyLimit-20)/6) + `"]}`, 202},
		"a long number":  {`{"events":[` + strings.Repeat("9", contract.BodyLimit-20) + `]}`, 202},
		"many names":     {names(), 202},
		"a long name":    {`{"` + strings.Repeat("n", contract.BodyLimit-2), 400},
		"spaces":         {`{"events":` + strings.Repeat(" ", contract.BodyLimit-20) + `[]}`, 202},
	}
	client := contract.HTTP1()
	t.Cleanup(client.CloseIdleConnections)
	var all sync.WaitGroup
	for name, b := range bombs {
		all.Go(func() {
			out, status, answer := (&caller{s.url, client}).ask(p.ctx, "POST", contract.NextPath(stream), b.body, nil)
			if status != b.status {
				t.Errorf("%s: got %d (%v) %s, want %d", name, status, out, contract.Shorten(string(answer)), b.status)
			}
		})
	}
	for _, by := range contract.Transports { // bodies that never end
		c := contract.NewT(t, s.over(t, by))
		all.Go(func() {
			resp, err := c.Try(p.ctx, "POST", contract.NextPath(stream), func(r *contract.Request) {
				r.Header.Set("Content-Type", "application/json")
				r.Body, r.Length = unending{}, -1
			})
			if err != nil {
				// If sending the body fails, the client may return this error instead of the
				// server's response, so the test accepts it.
				t.Logf("%s: an endless body failed with %v", by.Name, err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: an endless body got %d, want 413", by.Name, resp.StatusCode)
			}
		})
	}
	p.progress(10)
	all.Wait()
	p.progress(2)
}

// unending is a body that never ends.
type unending struct{}

func (unending) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Many large bodies that arrive slowly use all the memory that one key may use for bodies. Small
// bodies and bodies of other projects still get memory. When a further body of the same key has to
// wait for memory, the server refuses the slowest bodies of this key (D34).
func TestManyBodies(t *testing.T) {
	t.Parallel()
	s := confined(t, "export GOMEMLIMIT=256MiB", "--demo=false", "--rate-live", "0") // the server then uses 64 MiB for bodies, of which one key may use 44 MiB
	p := newBystanders(t, s)
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"bodies","mode":"raw"}`).ID
	const (
		n      = 8
		cutOff = "no answer"
	)
	answers := make(chan string, n)
	finish := make(chan struct{})
	for range n {
		go func() {
			body := io.MultiReader(strings.NewReader(strings.Repeat("x", 5*contract.MiB)), &late{finish, strings.NewReader(strings.Repeat("x", 3*contract.MiB))})
			resp, err := c.Try(p.ctx, "POST", contract.NextPath(stream), func(r *contract.Request) {
				r.Header.Set("Content-Type", "application/octet-stream")
				r.Body, r.Length = body, 8*contract.MiB
			})
			if err != nil {
				answers <- cutOff // a client that is still sending when the server closes the connection may miss the response
				return
			}
			defer resp.Body.Close()
			answers <- fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Retry-After"), contract.ReadAll(resp))
		}()
	}
	select {
	case got := <-answers:
		if got != cutOff && (!strings.HasPrefix(got, "503 5 ") || !strings.Contains(got, `"overloaded"`)) {
			t.Errorf("a slow body got %s while other bodies waited for memory, want 503 overloaded", contract.Shorten(got))
		}
	case <-time.After(10*time.Second + lateness):
		t.Fatal("no slow body was refused in time")
	}
	p.progress(10)
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	other := contract.NewT(t, s.target())
	other.Live = otherKey
	theirs := other.CreateBody(`{"name":"theirs","mode":"raw"}`).ID
	if resp := other.Send(ctx, "POST", contract.NextPath(theirs), contract.RawBody(contract.Filler(contract.BodyLimit))); resp.StatusCode != 202 {
		t.Errorf("a body of another project got %d, want 202", resp.StatusCode)
	} else {
		resp.Body.Close()
	}
	close(finish)
	for range n - 1 {
		if got := <-answers; got != cutOff && !strings.HasPrefix(got, "202 ") && !strings.HasPrefix(got, "503 ") {
			t.Errorf("a slow body got %s, want 202 or 503", contract.Shorten(got))
		}
	}
	c.Post(contract.NextPath(stream), contract.RawBody(contract.Filler(contract.BodyLimit))).Want(202) // succeeds only if the memory was released
}

// late is a body that arrives just fast enough for the server to accept it. Once the channel release
// is closed, the rest of the body arrives at once.
type late struct {
	release chan struct{}
	io.Reader
}

func (l *late) Read(b []byte) (int, error) {
	select {
	case <-l.release:
		return l.Reader.Read(b)
	case <-time.After(2 * time.Second):
		return l.Reader.Read(b[:min(len(b), 32<<10)])
	}
}
