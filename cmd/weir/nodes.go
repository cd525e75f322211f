package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/engine"
	"weir/internal/metrics"
)

// joinNodes makes this process known to the others that share the store, and has them count requests together.
func (svc *service) joinNodes() error {
	if svc.store.jetstream == nil {
		return nil
	}
	svc.access.Share()
	var err error
	svc.store.nodes, err = svc.store.jetstream.Join(svc.store.node, svc.access.Tally, svc.access.AddTally)
	if err != nil {
		return fmt.Errorf("join the other nodes: %w", err)
	}
	svc.hub.Lead(svc.store.nodes.First)
	return nil
}

func (s *store) leaveNodes() {
	if s.nodes != nil {
		s.nodes.Leave()
	}
}

// isFirst tells whether this node does what only one should do. A node alone always does.
func (s *store) isFirst() bool { return s.nodes == nil || s.nodes.First() }

// standing is how the cluster stands.
func (s *store) standing() metrics.Cluster {
	leads := ""
	if s.server != nil {
		leads = s.node
	}
	st := s.jetstream.Stand(context.Background(), leads)
	return metrics.Cluster{
		Nodes: len(s.nodes.Names()), Shards: st.Shards, Led: st.Led, Headless: st.Headless, Behind: st.Behind, Lag: st.Lag, Unsynced: s.unsynced.Load(),
	}
}

// cluster is where the numbers of the cluster are; nil without one.
func (s *store) cluster() func() metrics.Cluster {
	if s.nodes == nil {
		return nil
	}
	return s.standing
}

// clusterLine says how the cluster stands, for people; empty without one.
func (s *store) clusterLine() string {
	if s.nodes == nil {
		return ""
	}
	c := s.standing()
	line := fmt.Sprintf("%d nodes can be heard. This one is %s and leads %d of %d shards.", c.Nodes, s.node, c.Led, c.Shards)
	if c.Headless > 0 {
		line += fmt.Sprintf(" %d shards have no leader: nothing can be written to them.", c.Headless)
	}
	if c.Behind > 0 {
		line += fmt.Sprintf(" %d copies are not up to date, the furthest by %d messages.", c.Behind, c.Lag)
	}
	if c.Unsynced {
		line += " The NATS servers may acknowledge what a power cut undoes (--nats-allow-unsynced)."
	}
	return line
}

// lastWordsWithin is how long a node that stops tries to store what is nice to have.
const lastWordsWithin = 2 * time.Second

// lastWords is for what a service stores when it stops. Where other nodes may have stopped before, nobody may answer.
func (s *store) lastWords() (context.Context, context.CancelFunc) {
	if s.jetstream == nil {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), lastWordsWithin)
}

// settled is what is wrong with last words. That nobody heard them is none of this node's faults.
func (s *store) settled(err error, logger *slog.Logger) error {
	if s.jetstream != nil && err != nil {
		logger.Warn("when keys were last used was not stored", "error", err)
		return nil
	}
	return err
}

const (
	claims = "claim/"
	// claimFor is how long a node may take for what it claimed. After it another one may think that it died.
	claimFor = time.Minute
)

// claim tells whether this node is to do something that is done once for all nodes that share a store.
func (svc *service) claim(ctx context.Context, what string) bool {
	if svc.store.jetstream == nil {
		return true
	}
	type claim struct {
		Node string    `json:"node"`
		At   time.Time `json:"at"`
	}
	value, err := json.Marshal(claim{svc.store.node, time.Now()})
	if err != nil {
		return false
	}
	_, err = svc.engine.Create(ctx, claims+what, value)
	if errors.Is(err, engine.ErrExists) {
		var held claim
		doc, found := svc.engine.Get(ctx, claims+what)
		if found == nil && json.Unmarshal(doc.Value, &held) == nil && (held.Node == svc.store.node || time.Since(held.At) > claimFor) {
			_, err = svc.engine.Update(ctx, claims+what, value, doc.Revision)
		}
	}
	return err == nil
}
