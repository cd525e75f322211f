package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/admin"
	"weir/internal/build"
	"weir/internal/dashboard"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/copies"
	"weir/internal/engine/jetstream/nodes"
	"weir/internal/hub"
	"weir/internal/metrics"
)

// joinNodes announces this node to the other nodes that share the store. After this, all nodes
// count requests towards the same rate limits, and this node knows whether its clock is right.
func (svc *Service) joinNodes() error {
	if svc.store.jetstream == nil {
		return nil
	}
	svc.Access.Share()
	words := words{svc.Access, &svc.elsewhere}
	all := svc.store.jetstream.Nodes
	if err := all.Join(nodes.Self{Name: svc.store.node, Words: words.say, Hear: words.hear, About: svc.store.about}); err != nil {
		return fmt.Errorf("join the other nodes: %w", err)
	}
	svc.store.nodes = all
	return nil
}

// words builds and reads the messages that nodes send each other many times per second: how many
// requests they have counted, and for which sequences they are receiving batches. A message is one
// JSON object. Package access and the hub have their own members in it, and read only these.
type words struct {
	access    *access.Access
	elsewhere *atomic.Pointer[hub.Elsewhere] // nil until the hub is open
}

// receiving is the part of a message that belongs to the hub: the sequences for which a node is
// receiving batches.
type receiving struct {
	Receiving map[weir.StreamID][]weir.Seq `json:"receiving"`
}

func (w words) say() []byte {
	counted := w.access.Tally()
	e := w.elsewhere.Load()
	if e == nil {
		return counted
	}
	report := e.Tell()
	if report == nil {
		return counted
	}
	b, err := json.Marshal(receiving{report})
	switch {
	case err != nil:
		return counted
	case counted == nil:
		return b
	}
	return append(append(counted[:len(counted)-1], ','), b[1:]...)
}

func (w words) hear(b []byte) {
	w.access.AddTally(b)
	var r receiving
	if e := w.elsewhere.Load(); e != nil && bytes.Contains(b, []byte(`"receiving":`)) && json.Unmarshal(b, &r) == nil {
		e.Hear(r.Receiving)
	}
}

// description is what a node tells the other nodes about itself.
type description struct {
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Free    int64  `json:"free"`
	Size    int64  `json:"size"`
}

// about describes this node to the other nodes.
func (s *store) about() string {
	status := s.jetstream.Status()
	d := description{Version: build.This().Version, State: metrics.StateName(status.State)}
	if status.Reason != nil {
		d.Reason = status.Reason.Error()
	}
	if free, size, err := disk.Space(s.settings.Data); err == nil {
		d.Free, d.Size = free, size
	}
	b, err := json.Marshal(d)
	if err != nil {
		return ""
	}
	return string(b)
}

// list returns the nodes of the cluster for the admin socket.
func (s *store) list() (admin.Nodes, error) {
	if s.nodes == nil {
		return admin.Nodes{}, errAlone
	}
	var all admin.Nodes
	all.Connected, all.Expected = s.presentNodes()
	standing := s.jetstream.Copies.Stand(context.Background())
	all.Shards = shards(standing)
	leads, copies := standing.Servers()
	for _, p := range s.nodes.Peers() {
		n := admin.Node{Name: p.Name, This: p.Name == s.node, Silent: p.Silent.Seconds(), ClockAhead: p.Ahead.Seconds(), State: "unknown"}
		var d description
		if json.Unmarshal([]byte(p.About), &d) == nil { // a node of an earlier version does not describe itself
			n.State, n.Reason, n.Version, n.Free, n.Size = d.State, d.Reason, d.Version, d.Free, d.Size
		}
		if p.Gone {
			n.State, n.Reason = dashboard.NodeMissing, ""
		}
		if s.server != nil {
			n.Leads, n.Copies = leads[p.Name], copies[p.Name]
		}
		all.Nodes = append(all.Nodes, n)
	}
	return all, nil
}

// shards describes the JetStream streams of the store.
func shards(standing copies.Standing) (all []admin.Shard) {
	for _, stream := range standing.Streams {
		shard := admin.Shard{
			Name: admin.DocumentsShard, Leader: stream.Leader, Fault: stream.Fault, Messages: stream.Messages, Bytes: stream.Bytes,
			Replicas: []admin.Replica{},
		}
		if stream.Shard >= 0 {
			shard.Name = strconv.Itoa(stream.Shard)
		}
		for _, r := range stream.Replicas {
			state := admin.ReplicaCurrent
			switch {
			case r.Leads:
				state = admin.ReplicaLeads
			case r.Offline:
				state = admin.ReplicaOffline
			case !r.Current:
				state = admin.ReplicaBehind
			}
			shard.Lag = max(shard.Lag, r.Lag)
			shard.Replicas = append(shard.Replicas, admin.Replica{Node: r.Server, State: state, Lag: r.Lag})
		}
		all = append(all, shard)
	}
	return all
}

// nodesShown returns the source of the nodes that the dashboard shows; nil without a cluster.
func (s *store) nodesShown() func() dashboard.Nodes {
	if s.nodes == nil {
		return nil
	}
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	return func() dashboard.Nodes {
		all, _ := s.list() // fails only without a cluster
		shown := dashboard.Nodes{Connected: all.Connected, Expected: all.Expected}
		for _, n := range all.Nodes {
			shown.List = append(shown.List, dashboard.Node{
				Name: n.Name, This: n.This, State: n.State, Reason: n.Reason, Version: n.Version,
				Ahead: seconds(n.ClockAhead), Free: n.Free, Size: n.Size, Silent: seconds(n.Silent), Leads: n.Leads, Copies: n.Copies,
			})
		}
		for _, shard := range all.Shards {
			line := dashboard.Shard{Name: shard.Name, Leader: shard.Leader, Fault: shard.Fault, Messages: shard.Messages, Bytes: int64(shard.Bytes)}
			for _, r := range shard.Replicas {
				line.Replicas = append(line.Replicas, dashboard.Replica{Node: r.Node, State: r.State, Lag: r.Lag, Bad: r.State == admin.ReplicaOffline || r.State == admin.ReplicaBehind})
			}
			shown.Shards = append(shown.Shards, line)
		}
		return shown
	}
}

// clock returns the clock by which batches expire; nil means the system clock. In a cluster, it is
// right even if the system clock of this node is not.
func (s *store) clock() func() time.Time {
	if s.jetstream == nil {
		return nil
	}
	return s.jetstream.Nodes.Now
}

// lease returns a function whose result is an error while this node cannot know which keys and
// streams exist (D18). Without a cluster, or if the operator chose to keep serving on a node that
// is cut off, lease returns nil instead of a function.
func (s *store) lease() func() error {
	if s.jetstream == nil || s.settings.Engine.ServeCutOff {
		return nil
	}
	return s.jetstream.Lease
}

// leaseCheckEvery is how often watchLease calls the function lease. D18 allows two seconds.
const leaseCheckEvery = 500 * time.Millisecond

// watchLease ends all subscriptions while this node does not know which keys and streams exist. The
// API refuses requests by itself.
func watchLease(h *hub.Hub, lease func() error, logger *slog.Logger, stopping <-chan struct{}) {
	tick := time.NewTicker(leaseCheckEvery)
	defer tick.Stop()
	for wasCut := false; ; {
		select {
		case <-tick.C:
		case <-stopping:
			return
		}
		err := lease()
		h.Suspend(err != nil)
		switch isCut := err != nil; {
		case isCut && !wasCut:
			logger.Error("this node refuses requests and has ended all subscriptions", "error", err)
		case !isCut && wasCut:
			logger.Info("this node serves requests again")
		}
		wasCut = err != nil
	}
}

func (s *store) leaveNodes() {
	if s.nodes != nil {
		s.nodes.Leave()
	}
}

// isFirst reports whether this node is the one that does work for all nodes. On a server without a
// cluster the result is true.
func (s *store) isFirst() bool { return s.nodes == nil || s.nodes.First() }

// standing returns the state of the cluster.
func (s *store) standing() metrics.Cluster {
	st, n := s.jetstream.Copies.Stand(context.Background()), s.jetstream.Counts()
	led := 0
	if s.server != nil {
		leads, _ := st.Servers()
		led = leads[s.node]
	}
	var copies []metrics.Copy
	for _, shard := range shards(st) {
		for _, r := range shard.Replicas {
			copies = append(copies, metrics.Copy{
				Shard: shard.Name, Node: r.Node, Leads: r.State == admin.ReplicaLeads,
				Current: r.State == admin.ReplicaLeads || r.State == admin.ReplicaCurrent, Lag: r.Lag,
			})
		}
	}
	return metrics.Cluster{
		Nodes: len(s.nodes.Names()), Copies: copies, Shards: len(st.Streams), Led: led, Headless: st.Headless, Behind: st.Behind, Lag: st.Lag, Unsynced: s.unsynced.Load(),
		ClockAhead: s.nodes.Ahead(), Opens: n.Opens, Conflicts: n.Conflicts, Resends: n.Resends,
	}
}

// cluster returns the source of the cluster metrics; nil without a cluster.
func (s *store) cluster() func() metrics.Cluster {
	if s.nodes == nil {
		return nil
	}
	return s.standing
}

// clusterLine describes the state of the shards for the dashboard; empty without a cluster.
func (s *store) clusterLine() string {
	if s.nodes == nil {
		return ""
	}
	c := s.standing()
	line := fmt.Sprintf("This node is %s and leads %d of %d shards.", s.node, c.Led, c.Shards)
	if c.Headless > 0 {
		line += fmt.Sprintf(" %d shards have no leader and accept no writes.", c.Headless)
	}
	if c.Behind > 0 && c.Lag == 0 {
		line += fmt.Sprintf(" %d replicas are not up to date, or not connected.", c.Behind)
	} else if c.Behind > 0 {
		line += fmt.Sprintf(" %d replicas are behind, by up to %d messages.", c.Behind, c.Lag)
	}
	if s.jetstream.Status().State == engine.Skewed {
		line += fmt.Sprintf(" The clock of this node differs from the other nodes by %v, so this node accepts no writes.", c.ClockAhead.Abs().Round(time.Second))
	}
	if c.Unsynced {
		line += " The NATS servers may acknowledge before they sync, so a power cut may lose acknowledged batches (--nats-allow-unsynced)."
	}
	return line
}

// lastWritesWithin is how long a stopping node of a cluster tries to store data that it can afford
// to lose, such as the last use of keys.
const lastWritesWithin = 2 * time.Second

// lastWrites returns the context for the writes of a stopping service. In a cluster the context has
// a deadline: if the other nodes have already stopped, there is no quorum, and the writes would
// wait forever.
func (s *store) lastWrites() (context.Context, context.CancelFunc) {
	if s.jetstream == nil {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), lastWritesWithin)
}

// settled handles the error of the last write of a stopping service. In a cluster it only logs a
// warning, because a missing quorum is not a fault of this node.
func (s *store) settled(err error, logger *slog.Logger) error {
	if s.jetstream != nil && err != nil {
		logger.Warn("storing the last use of keys failed", "error", err)
		return nil
	}
	return err
}

// claimFor is how long a claim is valid. After this time another node may assume that the node with
// the claim has crashed.
const claimFor = time.Minute

// claimFirst reports whether this node should create the first project and its key, which only one
// node of a cluster should do. If it returns true, this node now has a claim in the store. As long as
// the claim is valid, claimFirst returns false on all other nodes.
func (svc *Service) claimFirst(ctx context.Context) bool {
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
	key := datadir.ClaimKey("first")
	_, err = svc.engine.Create(ctx, key, value)
	if errors.Is(err, engine.ErrExists) {
		var held claim
		doc, found := svc.engine.Get(ctx, key)
		if found == nil && json.Unmarshal(doc.Value, &held) == nil && (held.Node == svc.store.node || time.Since(held.At) > claimFor) {
			_, err = svc.engine.Update(ctx, key, value, doc.Revision)
		}
	}
	if err != nil && !errors.Is(err, engine.ErrExists) && !errors.Is(err, engine.ErrConflict) {
		svc.logger.Warn("the first project and its key were not created; the next start creates them", "error", err)
	}
	return err == nil
}
