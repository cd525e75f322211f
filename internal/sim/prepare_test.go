package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// prepare gives most clients that manage streams a stream and a key before the first request.
// Otherwise a short history would seldom have something that other clients can follow.
func (w *world) prepare(ctx context.Context, g *server) error {
	if w.prepared || !w.has("manage") || !w.has("keys") || !w.has("subscribe") {
		return nil
	}
	w.prepared = true
	for n := w.firstManager(); n < w.config.clients; n += roleCount {
		rng := rand.New(rand.NewPCG(w.seed, uint64(n)<<32))
		if rng.IntN(4) == 0 {
			continue
		}
		if err := w.prepareOne(ctx, g, n, rng); err != nil {
			return err
		}
	}
	return w.prepareVenture(ctx, g)
}

// prepareOne creates the stream and the key of a client. If the outcome of the first is unknown, the
// client finds it out.
func (w *world) prepareOne(ctx context.Context, g *server, n int, rng *rand.Rand) error {
	o := w.model.own(n)
	if w.isCluster() {
		o.nextHolding(n)
	}
	begun := time.Now()
	spec := hub.Spec{ID: o.id, Project: w.project, Name: "own", RetentionSeconds: int64(weir.DefaultRetention), MaxBytes: weir.DefaultMaxBytes, Mode: weir.JSON}
	if w.has("ttl") && rng.IntN(2) == 0 {
		spec.TTLSeconds = int64(1 + rng.IntN(1<<rng.IntN(4)))
	}
	_, err := g.hub.Create(ctx, spec)
	known := err == nil && !g.dead.Load()
	w.model.mu.Lock()
	if ttl := time.Duration(spec.TTLSeconds) * time.Second; o.held != nil {
		*o.held = holding{id: o.id, exists: known, vague: !known, changed: time.Now(), on: g, ttl: ttl, from: begun, to: time.Now()}
	} else if o.exists, o.sure, o.exact, o.told = known, known, known, known; known {
		o.life.created(g, ttl, begun)
	} else {
		o.life.vague, o.life.to = true, time.Now()
	}
	w.model.mu.Unlock()
	if err != nil {
		return err
	}
	k := &key{from: time.Now(), settings: "made at the start"}
	var after int64
	if rng.IntN(3) == 0 {
		after = int64(1 + rng.IntN(8))
		k.after = time.Duration(after) * time.Second
	}
	made, secret, err := g.access.CreateKey(ctx, access.KeySpec{Project: w.project, Kind: access.Live, RevokeAfter: after})
	if err == nil && !g.dead.Load() {
		k.id, k.secret, k.to = made.ID, secret.Reveal(), time.Now()
		w.model.setKey(o, k)
	}
	return err
}
