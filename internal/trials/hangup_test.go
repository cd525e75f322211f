package trials

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/contract"
)

var hangups = flag.Int("trials.hangups", 100, "number of requests that TestHangUp cuts off")

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
	h := &hangup{T: t, data: t.TempDir(), flags: append(flags, "--rate-live", "0")}
	h.start()
	h.cutOff(r, *hangups)
	h.settle()
	before := h.observe()
	for i, s := range h.subjects {
		if i%2 == 0 {
			h.exam(s, before[s])
		}
	}
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
	count := map[string]int{}
	for s, v := range before {
		count[fmt.Sprint(s.kind, ": carried out ", s.carriedOut(v))]++
	}
	t.Log(count)
}

// hangup is a server whose clients hang up, and a list of the streams and keys that their requests
// were about.
type hangup struct {
	*testing.T
	data     string
	flags    []string
	server   *server
	sockets  int     // number of sockets that the idle server has open; 0 if the system does not tell
	api      *caller // for requests that wait for their response
	admin    *caller // like api, but on the operator's socket
	mu       sync.Mutex
	subjects []*subject
}

// subject is the stream or the key that a request was about when its client hung up.
type subject struct {
	kind   string // the request: create, delete, publish, new key or revoke
	by     string // the transport
	name   string // id of the stream, or name of the key
	id     string // id of the key, if it is known
	secret string // the key, if it is known
	stored bool   // the batch of the client that hung up was stored; settle sets this
}

func (s *subject) String() string { return s.kind + " over " + s.by + ", " + s.name }

// isKey tells whether the subject is a key.
func (s *subject) isKey() bool { return s.kind == "new key" || s.kind == "revoke" }

// view is everything that the server says about a subject.
type view struct {
	exists   bool // GET finds the stream, or the list of keys contains the key
	cursor   int64
	stored   int64
	revoked  bool
	accepted bool // requests with the key are accepted; false if the test does not know the key
}

// carriedOut tells whether the server carried out the request of the client that hung up.
func (s *subject) carriedOut(v view) bool {
	switch s.kind {
	case "delete":
		return !v.exists
	case "publish":
		return s.stored
	case "revoke":
		return v.revoked
	}
	return v.exists
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

// operator returns a client of the operator's socket.
func operator(data string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(data, "admin.sock"))
	}}}
}

// cutOff sends n requests and hangs up on all of them. The requests over HTTP/3 come first, so that
// the server has time to finish them. The method settle cannot wait for them, because it counts
// open sockets, and all HTTP/3 connections share one socket.
func (h *hangup) cutOff(r *rand.Rand, n int) {
	for i, by := range slices.Backward(contract.Transports) {
		target := h.server.over(h, by)
		c := &caller{target.BaseURL, target.Client()}
		admin := &caller{h.admin.url, operator(h.data)}
		var all sync.WaitGroup
		work := make(chan uint64)
		for range 8 {
			all.Go(func() {
				for own := range work {
					h.round(rand.New(rand.NewPCG(own, 5)), by.Name, c, admin)
				}
			})
		}
		for range (n + i) / len(contract.Transports) {
			work <- r.Uint64()
		}
		close(work)
		all.Wait()
		c.ask(context.Background(), "GET", "/v1/streams", "", nil) // over HTTP/2 and HTTP/3 this request shares a connection with those that were cut off, and the server handles it after them
		c.client.CloseIdleConnections()
		admin.client.CloseIdleConnections()
	}
}

// round prepares a subject, sends a request that changes it, and hangs up.
func (h *hangup) round(r *rand.Rand, by string, c, admin *caller) {
	s := &subject{kind: []string{"create", "delete", "publish", "new key", "revoke"}[r.IntN(5)], by: by, name: contract.NewID()}
	create := fmt.Sprintf(`{"name":"hang up","id":%q}`, s.name)
	newKey := fmt.Sprintf(`{"project":"a","kind":"live","name":%q}`, s.name)
	if s.isKey() {
		s.by = "the admin socket"
	}
	switch s.kind {
	case "delete", "publish":
		h.want(h.api, "POST", "/v1/streams", create, 201)
		if r.IntN(2) == 0 && s.kind == "delete" { // publish first, so that the server has the stream's log open
			h.want(h.api, "POST", contract.NextPath(s.name), `{"events":[1]}`, 202)
		}
	case "revoke":
		var made struct{ ID, Key string }
		if b := h.want(h.admin, "POST", "/keys", newKey, 200); json.Unmarshal(b, &made) != nil || made.Key == "" {
			h.Errorf("create a key: got %s", b)
			return
		}
		s.id, s.secret = made.ID, made.Key
	}
	h.mu.Lock()
	h.subjects = append(h.subjects, s)
	h.mu.Unlock()
	switch s.kind {
	case "create":
		hangUp(r, c, "POST", "/v1/streams", create)
	case "delete":
		hangUp(r, c, "DELETE", "/v1/streams/"+s.name, "")
	case "publish":
		hangUp(r, c, "POST", contract.NextPath(s.name), `{"events":["hang up"]}`)
	case "new key":
		hangUp(r, admin, "POST", "/keys", newKey)
	case "revoke":
		hangUp(r, admin, "POST", "/keys/"+s.id+"/revoke", "")
	}
}

// hangUp sends a request and hangs up at a random moment.
func hangUp(r *rand.Rand, c *caller, method, path, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	after := time.Duration(r.IntN(4000)) * time.Microsecond
	if r.IntN(3) == 0 {
		after = 0
	}
	var sent io.Reader
	if body != "" {
		sent = &cutBody{rest: body, left: r.IntN(3 * len(body)), after: after, cut: cancel}
	} else {
		time.AfterFunc(after, cancel)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, sent)
	if err != nil {
		panic(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + liveKey}, "Content-Type": {"application/json"}, "Idempotency-Key": {"hang-up"}}
	if resp, err := c.client.Do(req); err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// cutBody is a body of unknown length. Its client hangs up after some of the bytes, or some time
// after the last one.
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
// last request, so settle waits until the connections are closed. A batch may still be in flight to
// the disk at this moment, so settle publishes each batch again with the same idempotency key. The
// server must store it once (D25).
func (h *hangup) settle() {
	h.Helper()
	defer func() {
		for _, s := range h.subjects {
			if s.kind != "publish" {
				continue
			}
			var ack contract.Ack
			b := h.want(h.api, "POST", contract.NextPath(s.name), `{"events":["hang up"]}`, 200, 202)
			if err := json.Unmarshal(b, &ack); err != nil || ack.Seq != 1 || ack.Cursor != 1 {
				h.Errorf("%s: publishing the batch again got %s", s, b)
			}
			s.stored = ack.Duplicate
		}
	}()
	h.api.client.CloseIdleConnections()
	h.admin.client.CloseIdleConnections()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); sockets(h.server.cmd.Process.Pid) > h.sockets; {
		select {
		case <-tick.C:
		case <-late:
			h.Fatal("the server still has connections of clients that hung up")
		}
	}
}

// want sends a request and checks the status of the response.
func (h *hangup) want(c *caller, method, path, body string, status ...int) []byte {
	h.Helper()
	_, got, b := c.ask(context.Background(), method, path, body, http.Header{"Idempotency-Key": {"hang-up"}})
	if !slices.Contains(status, got) {
		h.Errorf("%s %s: %d %s, want %v", method, path, got, contract.Shorten(string(b)), status)
	}
	return b
}

// observe asks the server about all subjects, each in several ways. All answers about one subject
// must agree.
func (h *hangup) observe() map[*subject]view {
	h.Helper()
	listed := map[string]bool{}
	for cursor, more := "", true; more; {
		var page struct {
			Data       []contract.Stream
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		b := h.want(h.api, "GET", "/v1/streams?limit=100"+cursor, "", 200)
		if err := json.Unmarshal(b, &page); err != nil {
			h.Fatalf("list streams: %v in %s", err, b)
		}
		for _, s := range page.Data {
			listed[s.ID] = true
		}
		cursor, more = "&cursor="+page.NextCursor, page.HasMore
	}
	var keys []struct {
		ID, Name  string
		RevokedAt any `json:"revoked_at"`
	}
	if b := h.want(h.admin, "GET", "/keys?project=a", "", 200); json.Unmarshal(b, &keys) != nil {
		h.Fatalf("list keys: %s", b)
	}
	all := map[*subject]view{}
	for _, s := range h.subjects {
		var v view
		if s.isKey() {
			for _, k := range keys {
				if k.Name == s.name {
					v.exists, v.revoked = true, k.RevokedAt != nil
				}
			}
			if v.accepted = s.secret != "" && h.accepts(s.secret); s.secret != "" && v.accepted == v.revoked {
				h.Errorf("%s: the key is accepted: %v, revoked: %v", s, v.accepted, v.revoked)
			}
		} else {
			var is contract.Stream
			b := h.want(h.api, "GET", "/v1/streams/"+s.name, "", 200, 404)
			if err := json.Unmarshal(b, &is); err != nil {
				h.Errorf("%s: %v in %s", s, err, b)
			}
			v = view{exists: is.ID != "", cursor: is.Cursor, stored: is.BytesStored}
			if v.exists != listed[s.name] {
				h.Errorf("%s: GET finds the stream: %v, the list has it: %v", s, v.exists, listed[s.name])
			}
		}
		all[s] = v
	}
	return all
}

// accepts tells whether the server accepts a key.
func (h *hangup) accepts(secret string) bool {
	h.Helper()
	_, status, b := h.api.ask(context.Background(), "GET", "/v1/streams", "", http.Header{"Authorization": {"Bearer " + secret}})
	if status == 401 && !strings.Contains(string(b), "key_revoked") {
		h.Errorf("the key is refused for a reason other than key_revoked: %s", b)
	}
	return status == 200
}

// exam changes a subject in every possible way, and checks that each response fits the state that
// observe found.
func (h *hangup) exam(s *subject, v view) {
	h.Helper()
	stream, create := "/v1/streams/"+s.name, fmt.Sprintf(`{"name":"exam","id":%q}`, s.name)
	switch {
	case s.kind == "new key":
	case s.kind == "revoke":
		h.want(h.admin, "POST", "/keys/"+s.id+"/revoke", "", 200)
		if h.accepts(s.secret) {
			h.Errorf("%s: the key is accepted after it was revoked", s)
		}
	case v.exists:
		h.want(h.api, "POST", "/v1/streams", create, 409)
		repeated := 202
		if v.cursor > 0 { // the stream's first batch has the same idempotency key
			repeated = 200
		}
		h.want(h.api, "POST", contract.NextPath(s.name), `{"events":["hang up"]}`, repeated)
		h.want(h.api, "DELETE", stream, "", 204)
		h.want(h.api, "GET", stream, "", 404)
		h.want(h.api, "POST", "/v1/streams", create, 201)
	default:
		h.want(h.api, "POST", contract.NextPath(s.name), `{"events":[1]}`, 404)
		h.want(h.api, "DELETE", stream, "", 404)
		h.want(h.api, "POST", "/v1/streams", create, 201)
		h.want(h.api, "POST", contract.NextPath(s.name), `{"events":[1]}`, 202)
		h.want(h.api, "DELETE", stream, "", 204)
	}
}
