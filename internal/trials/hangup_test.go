package trials

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/contract"
)

var hangups = flag.Int("trials.hangups", 100, "number of requests that TestHangUp cuts off, on each engine")

// Clients hang up in the middle of every kind of request that changes something, over every
// transport: before the body is complete, after the body, and while the server sends its response.
// The server either carries out such a request or ignores it. From then on, its answers to all
// kinds of requests show the same outcome, also after a restart (D33).
func TestHangUp(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"journal": nil, "nats": {"--engine", "nats", "--cluster-listen", "127.0.0.1:0"}} {
		t.Run(name, func(t *testing.T) { hangUps(t, flags) })
	}
}

func hangUps(t *testing.T, flags []string) {
	r, _ := seeded(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(hangUpPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &hangup{T: t, data: t.TempDir(), flags: append(flags, "--rate-live", "0", "--admin-password-file", password), cookies: map[bool]string{}}
	h.start()
	h.settings()
	h.cutOff(r, *hangups)
	h.settle()
	before := h.observe()
	count := map[string]int{}
	for i, s := range h.subjects {
		count[fmt.Sprint(s.kind, ": carried out ", s.carriedOut(before[s]))]++
		if i%2 == 0 {
			h.exam(s, before[s])
		}
	}
	t.Log(count)
	before = h.observe()
	if r.IntN(2) == 0 {
		h.server.kill()
	} else {
		h.server.stop(t)
	}
	h.start()
	after := h.observe()
	for _, s := range h.subjects {
		if before[s] != after[s] {
			t.Errorf("%s: %+v before the restart, %+v after it", s, before[s], after[s])
		}
		h.exam(s, after[s])
	}
}

// hangup is a server whose clients hang up, and a list of the streams, keys and projects that their
// requests were about.
type hangup struct {
	*testing.T
	data     string
	flags    []string
	server   *server
	sockets  int             // number of sockets that the idle server has open; 0 if the system does not tell
	api      *caller         // for requests that wait for their response
	admin    *caller         // like api, but on the operator's socket
	token    string          // a management token
	project  string          // id of the project that liveKey belongs to
	cookies  map[bool]string // cookies of the dashboard's admin, without and with TLS
	mu       sync.Mutex
	subjects []*subject
	callers  []*caller // all callers whose requests were cut off
}

// start starts the server.
func (h *hangup) start() {
	h.Helper()
	h.server = serve(h, h.data, h.flags...)
	h.sockets = sockets(h.server.cmd.Process.Pid)
	h.api = &caller{h.server.url, contract.HTTP1()}
	h.admin = &caller{"http://admin", operator(h.data)}
	h.Cleanup(h.api.client.CloseIdleConnections)
	h.Cleanup(h.admin.client.CloseIdleConnections)
}

// settings creates a management token and looks up the project of liveKey.
func (h *hangup) settings() {
	h.Helper()
	var made struct{ Token string }
	h.decode(h.want(h.admin, hungRequest{"POST", "/tokens", `{"name":"hang up"}`, nil}, 200), &made)
	h.token = made.Token
	for _, p := range h.projects() {
		if p.Name == "a" {
			h.project = p.ID
		}
	}
}

// operator returns a client of the operator's socket.
func operator(data string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(data, "admin.sock"))
	}}}
}

const hangUpPassword = "a long password of an admin"

// signIn signs in to the dashboard, and keeps the cookies.
func (h *hangup) signIn(c *caller, secure bool) {
	h.Helper()
	if h.cookies[secure] != "" {
		return
	}
	resp, err := c.client.PostForm(c.url+"/dashboard/sign-in", map[string][]string{"name": {"admin"}, "password": {hangUpPassword}})
	if err != nil {
		h.Fatal(err)
	}
	resp.Body.Close()
	var all []string
	for _, cookie := range resp.Cookies() {
		all = append(all, cookie.Name+"="+cookie.Value)
	}
	if resp.StatusCode != 303 || len(all) == 0 {
		h.Fatalf("sign in: %s", resp.Status)
	}
	h.cookies[secure] = strings.Join(all, "; ")
}

// cutOff sends n requests and hangs up on all of them. The requests over HTTP/3 come first, so that
// the server has time to finish them. The method settle cannot wait for them, because it counts
// open sockets, and all HTTP/3 connections share one socket.
func (h *hangup) cutOff(r *rand.Rand, n int) {
	for i, by := range slices.Backward(contract.Transports) {
		target := h.server.over(h, by)
		whole, torn := &caller{target.BaseURL, target.Client()}, &caller{target.BaseURL, target.Client()}
		if t, ok := torn.client.Transport.(*http.Transport); ok {
			t.WriteBufferSize = 1 // sends every piece of a request at once; otherwise HTTP/1.1 sends nothing of a small request that is cut off in its body
		}
		h.signIn(whole, by.Secure)
		callers := []*caller{whole, torn, {h.admin.url, operator(h.data)}}
		var all sync.WaitGroup
		work := make(chan uint64)
		for range 8 {
			all.Go(func() {
				for own := range work {
					h.round(rand.New(rand.NewPCG(own, 5)), by, callers)
				}
			})
		}
		for range (n + i) / len(contract.Transports) {
			work <- r.Uint64()
		}
		close(work)
		all.Wait()
		for _, c := range callers {
			c.ask(context.Background(), "GET", "/v1/streams", "", nil) // over HTTP/2 and HTTP/3 this request shares a connection with those that were cut off, and the server handles it after them
		}
		h.callers = append(h.callers, callers...)
	}
}

// round prepares a subject, sends a request that changes it, and hangs up.
func (h *hangup) round(r *rand.Rand, by contract.Transport, callers []*caller) {
	k := kinds[r.IntN(len(kinds))]
	s := &subject{kind: k, by: by.Name, name: contract.NewID(), cookie: h.cookies[by.Secure]}
	c := callers[r.IntN(2)]
	if k.admin {
		s.by, c = "the admin socket", callers[2]
	}
	if k.prepare != nil {
		k.prepare(h, s, r)
	}
	h.mu.Lock()
	h.subjects = append(h.subjects, s)
	h.mu.Unlock()
	hangUp(r, c, k.request(h, s))
}

// hangUp sends a request and hangs up at a random moment.
func hangUp(r *rand.Rand, c *caller, m hungRequest) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	after := time.Duration(r.IntN(4000)) * time.Microsecond
	if r.IntN(3) == 0 {
		after = 0
	}
	var sent io.Reader
	if m.body != "" {
		sent = &cutBody{rest: m.body, left: r.IntN(3 * len(m.body)), after: after, cut: cancel}
	} else {
		time.AfterFunc(after, cancel)
	}
	req, err := http.NewRequestWithContext(ctx, m.method, c.url+m.path, sent)
	if err != nil {
		panic(err)
	}
	if r.IntN(2) == 0 { // otherwise the length is unknown, and HTTP/1.1 sends chunks
		req.ContentLength = int64(len(m.body))
	}
	req.Header = http.Header{"Authorization": {"Bearer " + liveKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {"hang-up"}}
	maps.Copy(req.Header, m.header)
	if resp, err := c.client.Do(req); err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// cutBody is a body whose client hangs up after some of the bytes, or some time after the last one.
type cutBody struct {
	rest  string
	left  int // number of bytes until the client hangs up
	after time.Duration
	cut   func()
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.cut()
		return 0, context.Canceled
	}
	if b.rest == "" {
		time.AfterFunc(b.after, b.cut)
		return 0, io.EOF
	}
	n := copy(p, b.rest[:min(len(b.rest), b.left)])
	b.rest, b.left = b.rest[n:], b.left-n
	return n, nil
}

// settle waits until the server is done with all requests. The server closes a connection after its
// last request, so settle waits until the connections are closed. A client of HTTP/2 takes a moment
// to forget a request that was cut off, and until then it does not count the connection as idle, so
// settle asks it again and again to close its idle connections. A batch may still be in flight to
// the disk at this moment, so settle sends some requests again, or a request that comes after them
// in the same log. The response shows whether the first one was carried out.
func (h *hangup) settle() {
	h.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		for _, c := range append(h.callers, h.api, h.admin) {
			c.client.CloseIdleConnections()
		}
		if sockets(h.server.cmd.Process.Pid) <= h.sockets {
			break
		}
		select {
		case <-tick.C:
		case <-late:
			h.Fatal("the server still has connections of clients that hung up")
		}
	}
	for _, s := range h.subjects {
		if s.kind.settle != nil {
			s.kind.settle(h, s)
		}
	}
}

// want sends a request and checks the status of the response.
func (h *hangup) want(c *caller, m hungRequest, status ...int) []byte {
	h.Helper()
	_, b := h.wantOne(c, m, status...)
	return b
}

// wantOne is like want, and also returns the status.
func (h *hangup) wantOne(c *caller, m hungRequest, status ...int) (int, []byte) {
	h.Helper()
	header := http.Header{"Idempotency-Key": {"hang-up"}}
	maps.Copy(header, m.header)
	_, got, b := c.ask(context.Background(), m.method, m.path, m.body, header)
	if !slices.Contains(status, got) {
		h.Errorf("%s %s: %d %s, want %v", m.method, m.path, got, contract.Shorten(string(b)), status)
	}
	return got, b
}

// decode parses a response.
func (h *hangup) decode(b []byte, to any) {
	h.Helper()
	if err := json.Unmarshal(b, to); err != nil {
		h.Fatalf("%v in %s", err, b)
	}
}
