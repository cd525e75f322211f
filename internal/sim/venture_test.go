package sim

import (
	"context"
	"fmt"
	"time"

	"weir"
)

// venture is a project that the clients which manage streams share, and that one of them deletes. The
// project has no streams. Deleting it revokes its keys. Guarded by model.mu.
type venture struct {
	id       string
	keys     []*key
	deleting bool      // a client has tried to delete it
	deleted  time.Time // when a client learned that it was deleted; zero: not yet
	by       *server   // the process that deleted it
}

// refuses returns the key as the model sees it: the end of the project is the end of the key, also if
// the key was made at the same time.
func (v *venture) refuses(k *key) *key {
	seen := *k
	seen.revoking = seen.revoking || v.deleting
	if seen.revoked.IsZero() {
		seen.revoked, seen.by = v.deleted, v.by
	}
	return &seen
}

// pursue makes a key in the project, uses one, or deletes the project. It returns false if there is no
// project.
func (v *venture) pursue(c *client, g *server) bool {
	if v == nil {
		return false
	}
	c.w.model.mu.Lock()
	var k *key
	if len(v.keys) > 0 {
		k = v.keys[c.rng.IntN(len(v.keys))]
	}
	over := v.deleting
	c.w.model.mu.Unlock()
	switch r := c.rng.IntN(6); {
	case r == 0 && !over:
		v.delete(c, g)
	case k == nil || r < 3:
		v.createKey(c, g)
	default:
		v.use(c, g, k)
	}
	return true
}

// use uses a key. A client may delete the project before the response arrives.
func (v *venture) use(c *client, g *server, k *key) {
	if x := c.sendKey(g, k); x != nil {
		c.w.model.mu.Lock()
		k = v.refuses(k)
		c.w.model.mu.Unlock()
		c.judgeKey(k, x)
	}
}

// createKey makes a key. No key can be made once the project is deleted.
func (v *venture) createKey(c *client, g *server) {
	k := &key{settings: `"project":"` + v.id + `"`, from: time.Now()}
	x := c.send(g, &exchange{judged: true}, "POST", "/manage/v1/keys", []byte("{"+k.settings+"}"), "Authorization", "Bearer "+c.w.token)
	if x == nil || x.status == 503 {
		return
	}
	c.w.model.mu.Lock()
	defer c.w.model.mu.Unlock()
	var made struct{ ID, Key string }
	switch err := unmarshal(x.got.Bytes(), &made); {
	case x.status == 201 && err == nil && (v.deleted.IsZero() || !v.deleted.Before(x.at)):
		k.id, k.secret, k.to = made.ID, made.Key, time.Now()
		v.keys = append(v.keys, k)
	case x.status >= 400 && v.deleting:
	default:
		c.w.violation("project %s is deleted: %v, but a new key was answered with %s", v.id, !v.deleted.IsZero(), x)
	}
}

// delete deletes the project, as the dashboard does.
func (v *venture) delete(c *client, g *server) {
	c.w.model.mu.Lock()
	v.deleting = true
	c.w.model.mu.Unlock()
	ctx, x := g.opened(c)
	defer g.closed(x)
	if c.step("deletes project") != nil {
		x.leave()
	}
	n, err := g.access.DeleteProject(ctx, weir.ProjectID(v.id), func() error { return nil })
	c.last = fmt.Sprintf(" after %d keys were revoked with their project: %v", n, err)
	switch {
	case g.dead.Load():
	case err == nil && !g.hurt.Load():
		c.w.model.mu.Lock()
		v.deleted, v.by = time.Now(), g
		c.w.model.mu.Unlock()
	case err != nil && !g.hurt.Load() && !g.limited.Load() && !g.stopping.Load():
		c.w.violation("project %s cannot be deleted: %v", v.id, err)
	}
}

// prepareVenture creates the project in one of three histories.
func (w *world) prepareVenture(ctx context.Context, g *server) error {
	if w.seed/16%3 > 0 {
		return nil
	}
	p, err := g.access.CreateProject(ctx, "venture")
	if err == nil && !g.dead.Load() {
		w.model.mu.Lock()
		w.model.venture = &venture{id: string(p.ID)}
		w.model.mu.Unlock()
	}
	return err
}
