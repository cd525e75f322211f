package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir"
)

// key is a key that a client manages with the management token (D36). Guarded by model.mu.
type key struct {
	id, secret string
	settings   string        // the members of the JSON body of the request that created the key
	stream     weir.StreamID // the only stream that it can use; empty: it can use all
	once       string        // the Idempotency-Key of its creation; empty: none
	after      time.Duration // time from its creation until it revokes itself; 0: never
	from, to   time.Time     // it was created between these times
	revoked    time.Time     // when a client learned that it was revoked; zero: not yet
	by         *server       // the process that revoked it
	revoking   bool          // a client has tried to revoke it
}

// mayBeRefused reports whether the server may refuse the key now. Each change of the server's clock
// may make the key older, and no change makes it younger, because the clock by which keys revoke
// themselves never goes back.
func (k *key) mayBeRefused(w *world) bool {
	return k.revoking || k.after > 0 && time.Since(k.from)+max(w.moved, w.swing(k.from))+millis >= k.after
}

// mustBeRefused reports whether the process g must refuse the key at the given time. Another node
// of a cluster may learn late that the key was revoked (D18), but each node knows itself when a key
// revokes itself (D36).
func (k *key) mustBeRefused(w *world, g *server, at time.Time) bool {
	late := time.Duration(0)
	if w.isCluster() && k.by != g {
		late = leaseFor
	}
	return !k.revoked.IsZero() && k.revoked.Add(late).Before(at) || k.after > 0 && !w.isUnsure() && at.Sub(k.to)-w.swing(k.from)-millis >= k.after
}

// manageKeys makes, uses, lists or revokes a key.
func (c *client) manageKeys(g *server, o *own) {
	k := c.w.model.keyOf(o)
	switch r := c.rng.IntN(8); {
	case k == nil || k.id == "":
		c.createKey(g, o, k)
	case r == 0 && k.once != "":
		c.createKey(g, o, k) // repeats the request
	case r <= 2 && (k.after == 0 || c.rng.IntN(4) == 0): // most keys that can revoke themselves are left to do so
		c.revokeKey(g, k, o)
	case r == 3 && !c.w.isCluster(): // another node may list an old state
		c.listKeys(g, k)
	case r == 4 && k.mustBeRefused(c.w, g, time.Now()):
		c.w.model.setKey(o, nil)
	case k.after == 0 || !c.w.model.isUsed(o): // while a subscription uses a key that revokes itself, no other request does: the key must revoke itself without one
		c.useKey(g, k)
	}
}

func (m *model) keyOf(o *own) *key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return o.key
}

// isUsed reports whether a subscription uses the key of o.
func (m *model) isUsed(o *own) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return o.user != nil
}

func (m *model) setKey(o *own, k *key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.key = k
}

// manages sends a request with the management token.
func (c *client) manages(g *server, method, path string, body []byte, fields ...string) *exchange {
	x := c.send(g, &exchange{judged: true}, method, path, body, append(fields, "Authorization", "Bearer "+c.w.token)...)
	if x != nil && x.status != 503 && x.status != 200 && x.status != 201 {
		c.w.violation("%s %s: %d %s", method, path, x.status, x.got.String())
		return nil
	}
	if x == nil || x.status == 503 {
		return nil
	}
	return x
}

// createKey creates a key, or repeats its creation if k is not nil.
func (c *client) createKey(g *server, o *own, k *key) {
	if k == nil {
		k = &key{settings: `"project":"` + string(c.w.project) + `"`, from: time.Now()}
		if c.rng.IntN(2) == 0 {
			k.after = time.Duration(1+c.rng.IntN(12)) * time.Second
			k.settings += fmt.Sprintf(`,"revoke_after":%d`, k.after/time.Second)
		}
		if c.rng.IntN(2) == 0 {
			k.stream = o.id
			k.settings += fmt.Sprintf(`,"streams":["%s"]`, o.id)
		}
		if c.rng.IntN(3) == 0 {
			k.settings += `,"permissions":["publish"]`
		}
		if c.rng.IntN(2) == 0 {
			c.sent++
			k.once = fmt.Sprintf("once-%d-%d", c.n, c.sent)
		}
	}
	var fields []string
	if k.once != "" {
		fields = []string{"Idempotency-Key", k.once}
	}
	x := c.manages(g, "POST", "/manage/v1/keys", []byte("{"+k.settings+"}"), fields...)
	if x == nil {
		if k.id == "" && k.once != "" {
			c.w.model.setKey(o, k) // the next attempt finds out whether the key exists
		}
		return
	}
	var made struct{ ID, Key string }
	err := unmarshal(x.got.Bytes(), &made)
	if k.id != "" && c.w.isCluster() && !c.w.cluster.unsure.IsZero() {
		return // a node whose clock is wrong forgets idempotency keys too early
	}
	if err != nil || made.ID == "" || k.id != "" && (made.ID != k.id || made.Key != k.secret || x.status != 200) {
		c.w.violation("key %s %s: the response to its creation is %d %s", k.id, k.secret, x.status, x.got.String())
		return
	}
	if k.id == "" {
		k.to = time.Now()
		c.w.model.mu.Lock()
		k.id, k.secret = made.ID, made.Key
		c.w.model.mu.Unlock()
	}
	c.w.model.setKey(o, k)
}

// revokeKey revokes the key. The subscription that uses it must end soon.
func (c *client) revokeKey(g *server, k *key, o *own) {
	c.w.model.mu.Lock()
	k.revoking = true
	c.w.model.mu.Unlock()
	x := c.manages(g, "POST", "/manage/v1/keys/"+k.id+"/revoke", nil)
	if x == nil {
		return
	}
	var revoked struct {
		RevokedAt *time.Time `json:"revoked_at"`
	}
	if err := unmarshal(x.got.Bytes(), &revoked); err != nil || revoked.RevokedAt == nil {
		c.w.violation("key %s was revoked, but the response is %s", k.id, x.got.String())
	}
	c.w.model.mu.Lock()
	if k.revoked.IsZero() && !g.hurt.Load() {
		k.revoked, k.by = time.Now(), g
	}
	c.w.model.mu.Unlock()
	c.w.mustEnd(o, g, func(x *exchange) bool { return x.key == k })
}

// listKeys reads all pages of the list of keys. The client's key must be in the list once.
func (c *client) listKeys(g *server, k *key) {
	found, limit := 0, 1+c.rng.IntN(5)
	begun, last := time.Now(), ""
	for cursor := ""; ; {
		x := c.manages(g, "GET", fmt.Sprintf("/manage/v1/keys?limit=%d%s", limit, cursor), nil)
		if x == nil || g != c.w.current() {
			return
		}
		var page struct {
			Data []struct {
				ID        string
				CreatedAt string     `json:"created_at"`
				RevokedAt *time.Time `json:"revoked_at"`
			}
			More bool   `json:"has_more"`
			Next string `json:"next_cursor"`
		}
		if err := unmarshal(x.got.Bytes(), &page); err != nil || len(page.Data) > limit {
			c.w.violation("the list of keys is %s: %v", x.got.String(), err)
			return
		}
		for _, listed := range page.Data {
			if last != "" && listed.CreatedAt > last {
				c.w.violation("the list of keys has a key created at %s after a key created at %s", listed.CreatedAt, last)
			}
			if last = listed.CreatedAt; listed.ID != k.id {
				continue
			}
			found++
			if !k.revoked.IsZero() && k.revoked.Before(begun) && listed.RevokedAt == nil {
				c.w.violation("key %s was revoked, but its record says otherwise: %s", k.id, x.got.String())
			}
		}
		if cursor = "&cursor=" + page.Next; !page.More {
			break
		}
	}
	if found != 1 {
		c.w.violation("the list has key %s %d times, want once", k.id, found)
	}
}

// onlyPublishes reports whether the key has no permission to read.
func (k *key) onlyPublishes() bool { return strings.Contains(k.settings, "permissions") }

// useKey lists streams with the key.
func (c *client) useKey(g *server, k *key) {
	if x := c.sendKey(g, k); x != nil {
		c.judgeKey(k, x)
	}
}

// sendKey lists streams with the key. It returns nil if there is no response that counts.
func (c *client) sendKey(g *server, k *key) *exchange {
	x := c.send(g, &exchange{judged: true}, "GET", "/v1/streams?limit=100", nil, "Authorization", "Bearer "+k.secret)
	if x != nil && x.status == 503 {
		return nil
	}
	return x
}

// judgeKey checks a response to a request with the key: a revoked key must be refused, and any
// other key can do what its permissions and its streams allow.
func (c *client) judgeKey(k *key, x *exchange) {
	refused := x.status == 401 && x.code() == weir.KeyRevoked
	forbidden := k.onlyPublishes()
	switch {
	case refused && !k.mayBeRefused(c.w):
		c.w.violation("key %s is refused %v after its creation: %s", k.id, time.Since(k.from), k.settings)
	case !refused && k.mustBeRefused(c.w, x.server, x.at):
		c.w.violation("key %s is accepted %v after its creation: %s", k.id, time.Since(k.from), k.settings)
	case !refused && (forbidden && x.status != 403 || !forbidden && x.status != 200):
		c.w.violation("key %s with %s: %d %s", k.id, k.settings, x.status, x.got.String())
	case x.status == 200 && k.stream != "":
		var page struct{ Data []weir.Stream }
		if err := unmarshal(x.got.Bytes(), &page); err != nil || slices.ContainsFunc(page.Data, func(s weir.Stream) bool { return s.ID != k.stream }) {
			c.w.violation("key %s with %s: %s", k.id, k.settings, x.got.String())
		}
	}
}
