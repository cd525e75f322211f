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

// Bodies that are made to be dear to check are refused or stored like any other.
func TestBodyBombs(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--demo=false", "--rate-live", "0")
	p := peaceful(t, s)
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
		"zeros":           {`{"events":[` + strings.Repeat("0,", (contract.BodyLimit-20)/2) + `0]}`, 202},
		"bytes of zero":   {strings.Repeat("\x00", contract.BodyLimit), 400},
		"nesting":         {`{"events":[` + strings.Repeat("[", contract.BodyLimit-20), 400},
		"closed nesting":  {`{"events":[` + strings.Repeat("[", 3<<20) + strings.Repeat("]", 3<<20) + `]}`, 400},
		"a long string":   {`{"events":["` + strings.Repeat("x", contract.BodyLimit-20) + `"]}`, 202},
		"escapes":         {`{"events":["` + strings.Repeat(`\u0000`, (contract.BodyLimit-20)/6) + `"]}`, 202},
		"a long number":   {`{"events":[` + strings.Repeat("9", contract.BodyLimit-20) + `]}`, 202},
		"many names":      {names(), 202},
		"a name for ever": {`{"` + strings.Repeat("n", contract.BodyLimit-2), 400},
		"spaces":          {`{"events":` + strings.Repeat(" ", contract.BodyLimit-20) + `[]}`, 202},
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
	for _, by := range contract.Transports { // bodies without end
		c := contract.NewT(t, s.over(t, by))
		all.Go(func() {
			resp, err := c.Try(p.ctx, "POST", contract.NextPath(stream), func(r *contract.Request) {
				r.Header.Set("Content-Type", "application/json")
				r.Body, r.Length = unending{}, -1
			})
			if err != nil {
				t.Logf("%s: a body without end ended with %v", by.Name, err) // a client that cannot send on may look no further
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: a body without end got %d", by.Name, resp.StatusCode)
			}
		})
	}
	p.goOn(10)
	all.Wait()
	p.goOn(2)
}

type unending struct{}

func (unending) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Many large bodies at once wait for memory, and are refused when there is none for too long; another project's go on, and so
// do small ones.
func TestManyBodies(t *testing.T) {
	t.Parallel()
	s := confined(t, "export GOMEMLIMIT=256MiB", "--demo=false", "--rate-live", "0") // 64 MiB for bodies, 32 for each project
	p := peaceful(t, s)
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"bodies","mode":"raw"}`).ID
	const (
		n      = 8 // of which four fit
		cutOff = "no answer"
	)
	answers := make(chan string, n)
	finish := make(chan struct{})
	for range n {
		go func() {
			body := io.MultiReader(strings.NewReader(strings.Repeat("x", contract.MiB)), &late{finish, strings.NewReader(strings.Repeat("x", 7*contract.MiB))})
			resp, err := c.Try(p.ctx, "POST", contract.NextPath(stream), func(r *contract.Request) {
				r.Header.Set("Content-Type", "application/octet-stream")
				r.Body, r.Length = body, 8*contract.MiB
			})
			if err != nil {
				answers <- cutOff // a client that is sending when the connection ends may not see the answer
				return
			}
			defer resp.Body.Close()
			answers <- fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("Retry-After"), contract.ReadAll(resp))
		}()
	}
	for range n - 4 {
		select {
		case got := <-answers:
			if got != cutOff && (!strings.HasPrefix(got, "503 5 ") || !strings.Contains(got, `"overloaded"`)) {
				t.Errorf("a body beyond the memory got %s", contract.Shorten(got))
			}
		case <-time.After(10*time.Second + lateness):
			t.Fatal("bodies beyond the memory wait for ever")
		}
	}
	p.goOn(10)
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	other := contract.NewT(t, s.target())
	other.Live = otherKey
	theirs := other.CreateBody(`{"name":"theirs","mode":"raw"}`).ID
	if resp := other.Send(ctx, "POST", contract.NextPath(theirs), contract.RawBody(contract.Filler(contract.BodyLimit))); resp.StatusCode != 202 {
		t.Errorf("another project's body got %d", resp.StatusCode)
	} else {
		resp.Body.Close()
	}
	close(finish)
	for range 4 {
		if got := <-answers; !strings.HasPrefix(got, "202 ") {
			t.Errorf("a body within the memory got %s", contract.Shorten(got))
		}
	}
	c.Post(contract.NextPath(stream), contract.RawBody(contract.Filler(contract.BodyLimit))).Want(202) // all is given back
}

// late is a body that comes when it is told to, and until then just fast enough.
type late struct {
	when chan struct{}
	io.Reader
}

func (l *late) Read(b []byte) (int, error) {
	select {
	case <-l.when:
		return l.Reader.Read(b)
	case <-time.After(2 * time.Second):
		return l.Reader.Read(b[:min(len(b), 32<<10)])
	}
}
