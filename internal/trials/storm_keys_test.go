package trials

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/internal/contract"
)

// forgetWithin is how long a node may honour a revoked key or a deleted stream: the lease of a node
// that is cut off (D18). Subscriptions may end 2 s later.
const forgetWithin = 15 * time.Second

// guard creates keys and streams, uses them on every node, and revokes and deletes them. No node may
// serve them afterwards for longer than D18 allows, and no node may refuse them before.
type guard struct {
	k       *chaos
	token   string
	project string
	watched string // stream to which the subscriptions of the keys are opened
	quit    chan struct{}
	work    sync.WaitGroup

	mu           sync.Mutex
	keys         int
	worst, ended time.Duration // how long a node honoured a revoked key in a request, and in a subscription
	deleted      time.Duration // how long a node served a deleted stream
}

// newGuard starts the clients of a guard.
func newGuard(k *chaos, watched string) *guard {
	k.t.Helper()
	g := &guard{k: k, watched: watched, quit: make(chan struct{})}
	g.token, _ = k.c.node(0).newToken(k.t)
	g.findProject()
	for i := range 3 {
		r := rand.New(rand.NewPCG(k.r.Uint64(), uint64(30+i)))
		g.work.Go(func() {
			for wait := time.Duration(r.IntN(10)) * time.Second; g.pause(wait); wait = 0 {
				g.trial(r)
			}
		})
	}
	return g
}

// findProject finds the project of liveKey.
func (g *guard) findProject() {
	g.k.t.Helper()
	var list struct {
		Data []struct{ ID, Name string }
	}
	_, status, b := g.manage(context.Background(), 0, "GET", "/manage/v1/projects", "", "")
	if err := json.Unmarshal(b, &list); err != nil || status != 200 {
		g.k.t.Fatalf("list projects: %d %s", status, b)
	}
	for _, p := range list.Data {
		if p.Name == "a" {
			g.project = p.ID
		}
	}
}

// manage sends a request with the management token.
func (g *guard) manage(ctx context.Context, node int, method, path, body, key string) (outcome, int, []byte) {
	h := http.Header{"Authorization": {"Bearer " + g.token}}
	if key != "" {
		h.Set("Idempotency-Key", key)
	}
	return g.k.on(node).ask(ctx, method, path, body, h)
}

// insist sends a request to one node after the other until a node carries it out. It returns when
// the first attempt was sent and the body of the response.
func (g *guard) insist(what string, send func(ctx context.Context, node int) (outcome, int, []byte)) (sent time.Time, body []byte) {
	sent = time.Now()
	for node := 0; ; node++ {
		ctx, cancel := context.WithTimeout(context.Background(), answered)
		out, status, b := send(ctx, node)
		cancel()
		if out == done || out == refused && status == 404 && strings.HasPrefix(what, "delete") || out == refused && status == 409 && strings.HasPrefix(what, "create") {
			return sent, b
		}
		if out == refused {
			g.k.t.Errorf("%s: %d %s", what, status, b)
			return sent, nil
		}
		g.k.breathe()
	}
}

func (g *guard) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-g.quit:
		return false
	case <-t.C:
		return true
	}
}

// lifetime says when a key or a stream ceased to exist. The exact time is unknown: the fields are the
// earliest and the latest possible times. They are zero until these times are known.
type lifetime struct {
	mu               sync.Mutex
	earliest, latest time.Time
}

// ends notes when the key or the stream ceased to exist.
func (l *lifetime) ends(earliest, latest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.earliest, l.latest = earliest, latest
}

// since compares a time with the lifetime. The result over is for how long the key or the stream had
// certainly ceased to exist, and early is for how long it would certainly still exist.
func (l *lifetime) since(at time.Time) (over, early time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.latest.IsZero() {
		over = at.Sub(l.latest)
	}
	if early = time.Hour; !l.earliest.IsZero() {
		early = l.earliest.Sub(at)
	}
	return over, early
}

// trial creates a key and a stream, uses both on every node for a while, and revokes and deletes
// them. Some keys revoke themselves (D36).
func (g *guard) trial(r *rand.Rand) {
	id, life, self := contract.NewID(), time.Duration(8+r.IntN(20))*time.Second, r.IntN(3) == 0
	settings := fmt.Sprintf(`{"project":%q}`, g.project)
	if self {
		settings = fmt.Sprintf(`{"project":%q,"revoke_after":%d}`, g.project, int(life.Seconds()))
	}
	g.insist("create a stream", func(ctx context.Context, node int) (outcome, int, []byte) {
		return g.k.on(node+r.IntN(3)).ask(ctx, "POST", "/v1/streams", fmt.Sprintf(`{"name":"short-lived","id":%q}`, id), nil)
	})
	g.insist("publish", func(ctx context.Context, node int) (outcome, int, []byte) {
		return g.k.on(node).ask(ctx, "POST", contract.SeqPath(id, 1), `{"events":["short-lived"]}`, nil)
	})
	sent, b := g.insist("make a key", func(ctx context.Context, node int) (outcome, int, []byte) {
		return g.manage(ctx, node, "POST", "/manage/v1/keys", settings, id)
	})
	var made struct{ ID, Key string }
	if err := json.Unmarshal(b, &made); err != nil || made.Key == "" {
		g.k.t.Errorf("make a key: %s", b)
		return
	}
	var key, stream lifetime
	if self {
		key.ends(sent.Add(life), time.Now().Add(life))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var users sync.WaitGroup
	for node := range g.k.c.nodes {
		users.Go(func() { g.useKey(ctx, node, made.Key, &key) })
		users.Go(func() { g.useSubscription(ctx, node, made.Key, &key) })
		users.Go(func() { g.useStream(ctx, node, id, &stream) })
	}
	g.pause(life)
	from := r.IntN(3)
	if !self {
		key.ends(time.Now(), time.Time{})
		sent, _ := g.insist("revoke a key", func(ctx context.Context, node int) (outcome, int, []byte) {
			return g.manage(ctx, from+node, "POST", "/manage/v1/keys/"+made.ID+"/revoke", "", "")
		})
		key.ends(sent, time.Now())
	}
	stream.ends(time.Now(), time.Time{})
	sent, _ = g.insist("delete a stream", func(ctx context.Context, node int) (outcome, int, []byte) {
		return g.k.on(from+node).ask(ctx, "DELETE", "/v1/streams/"+id, "", nil)
	})
	stream.ends(sent, time.Now())
	g.pause(2 * forgetWithin)
	cancel()
	users.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys++
}

// useKey sends requests with a key. The path does not exist: a node that is cut off still answers
// 404 to such a request if it accepts the key.
func (g *guard) useKey(ctx context.Context, node int, key string, life *lifetime) {
	g.use(ctx, node, life, use{
		key: key, path: "/v1/nowhere", served: 404, refused: 401, what: "request with a revoked key", worst: &g.worst, early: "refused a key that is valid",
	})
}

// useSubscription keeps a subscription open with a key.
func (g *guard) useSubscription(ctx context.Context, node int, key string, life *lifetime) {
	last := int64(0)
	for ; ctx.Err() == nil; g.rest(ctx) {
		err := g.k.on(node).followGaps(ctx, key, g.watched, last, func(b sighting) bool {
			last = b.seq
			over, _ := life.since(time.Now())
			g.honoured("subscription with a revoked key", node, over, &g.ended, forgetWithin+2*time.Second+punctual)
			return true
		}, func(_, to int64) { last = to })
		if err != nil {
			g.k.t.Errorf("subscriber with a key: %v", err)
		}
	}
}

// useStream reads the batch of a stream that is deleted at some time. A node that is cut off can
// still answer such a read.
func (g *guard) useStream(ctx context.Context, node int, id string, life *lifetime) {
	g.use(ctx, node, life, use{
		key: liveKey, path: "/v1/streams/" + id + "/batches/1", served: 200, refused: 404, what: "request for a deleted stream", worst: &g.deleted,
		early: "does not know a stream that exists",
	})
}

// use is a request for something that ends at some time.
type use struct {
	key, path       string
	served, refused int    // the statuses before the end and after it
	what            string // names the request if it is served after the end
	worst           *time.Duration
	early           string // says what the node did if it refused the request before the end
}

// use sends a request again and again. Once the node has served it, the node must go on until the
// end, and not much longer.
func (g *guard) use(ctx context.Context, node int, life *lifetime, u use) {
	known := false
	for ; ctx.Err() == nil; g.rest(ctx) {
		begun := time.Now()
		status := g.status(ctx, node, u.key, u.path)
		over, _ := life.since(begun)
		_, early := life.since(time.Now())
		switch {
		case status == u.served:
			known = true
			g.honoured(u.what, node, over, u.worst, forgetWithin+punctual)
		case status == u.refused && known && early > punctual:
			g.k.t.Errorf("node %d %s for another %v", node, u.early, early)
		}
	}
}

// honoured notes that a node served something for the time over after its end.
func (g *guard) honoured(what string, node int, over time.Duration, worst *time.Duration, limit time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*worst = max(*worst, over)
	if over > limit {
		g.k.t.Errorf("node %d served a %s, %v after its end", node, what, over)
	}
}

func (g *guard) rest(ctx context.Context) { wait(ctx, 250*time.Millisecond) }

// status sends a GET request and returns the status of the response, or 0.
func (g *guard) status(ctx context.Context, node int, key, path string) int {
	ctx, cancel := context.WithTimeout(ctx, answered)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", g.k.c.node(node).url+path, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := g.k.client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// finish ends the clients.
func (g *guard) finish() {
	g.k.t.Helper()
	close(g.quit)
	await(g.k.t, "the trials of keys end", &g.work)
	g.k.t.Logf("%d keys and streams ended; the longest time for which a node served them afterwards: keys %v, their subscriptions %v, streams %v",
		g.keys, g.worst.Round(time.Millisecond), g.ended.Round(time.Millisecond), g.deleted.Round(time.Millisecond))
}
