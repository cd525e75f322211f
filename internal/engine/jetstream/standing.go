package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Standing describes the state of the servers that hold a store.
type Standing struct {
	Streams []StreamStanding // the JetStream streams of the store: first that of the documents, then the shards in order
	// Headless is the number of streams that accept no writes: they have no leader that is in
	// contact with a majority of the replicas, or no server answered.
	Headless int
	Replicas int    // total number of copies of the streams, as far as known
	Behind   int    // number of these copies that are offline or not up to date
	Lag      uint64 // number of messages missing on the copy that is furthest behind
	Bytes    uint64 // total size of the streams whose servers answered, counting one copy of each
}

// StreamStanding describes the state of one JetStream stream.
type StreamStanding struct {
	Shard    int    // number of the shard; -1 for the stream of the documents
	Leader   string // name of the server that leads the stream; empty if there is none or it is unknown
	Fault    string // why the stream accepts no writes; empty if it accepts writes
	Messages uint64
	Bytes    uint64 // size of one copy
	Wanted   int    // number of copies that the stream should have
	Replicas []ReplicaStanding
}

// ReplicaStanding describes one copy of a JetStream stream.
type ReplicaStanding struct {
	Server  string
	Leads   bool
	Current bool   // the copy is up to date, as far as the leader knows
	Offline bool   // the server is not connected
	Lag     uint64 // number of messages that the copy lacks
}

// Behind reports whether the copy is offline or not up to date.
func (r ReplicaStanding) Behind() bool { return r.Offline || !r.Current }

// Counts are the numbers of events since the engine was opened.
type Counts struct {
	Opens     uint64 // logs that were opened and read as a whole
	Conflicts uint64 // writes to a log that came too late, because another node had written first
	Resends   uint64 // writes to a log that were sent again, because no server answered in time
}

type counts struct{ opens, conflicts, resends atomic.Uint64 }

// Counts returns the numbers of events so far.
func (e *Engine) Counts() Counts {
	return Counts{Opens: e.counts.opens.Load(), Conflicts: e.counts.conflicts.Load(), Resends: e.counts.resends.Load()}
}

const (
	// standWithin is how long servers may take to answer.
	standWithin = time.Second
	// standFor is how long Stand returns the same result. The dashboard and the metrics may ask at
	// any rate, but a question costs the servers one request per stream.
	standFor = 2 * time.Second
	// standAtOnce is how many streams Stand asks for at the same time.
	standAtOnce = 32
)

// stand is the last result of Stand.
type stand struct {
	mu  sync.Mutex // held while the servers are asked, so that concurrent callers ask once
	at  time.Time
	all Standing
}

// Stand returns the state of every stream of the store. The result is at most two seconds old.
func (e *Engine) Stand(ctx context.Context) Standing {
	e.stand.mu.Lock()
	defer e.stand.mu.Unlock()
	if time.Since(e.stand.at) >= standFor || len(e.stand.all.Streams) != 1+len(e.shards()) {
		e.stand.all = e.askStanding(ctx)
		e.stand.at = time.Now()
	}
	return e.stand.all
}

// askStanding asks the servers for the state of every stream.
func (e *Engine) askStanding(ctx context.Context) Standing {
	ctx, cancel := context.WithTimeout(ctx, standWithin)
	defer cancel()
	names := e.streamNames()
	all := Standing{Streams: make([]StreamStanding, len(names))}
	var asked sync.WaitGroup
	places := make(chan struct{}, standAtOnce)
	for i, name := range names {
		places <- struct{}{}
		asked.Go(func() {
			all.Streams[i] = e.askStream(ctx, name)
			all.Streams[i].Shard = i - 1
			<-places
		})
	}
	asked.Wait()
	for _, s := range all.Streams {
		if s.Fault != "" {
			all.Headless++
		}
		all.Bytes += s.Bytes
		all.Replicas += len(s.Replicas)
		for _, r := range s.Replicas {
			all.Lag = max(all.Lag, r.Lag)
			if r.Behind() {
				all.Behind++
			}
		}
	}
	return all
}

// askStream asks the servers for the state of one stream. If that fails, the result has only a fault.
func (e *Engine) askStream(ctx context.Context, name string) StreamStanding {
	info, err := e.servers.Stream(ctx, name)
	if err != nil {
		fault := "no server answered"
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			fault = "its stream " + name + " does not exist"
		}
		return StreamStanding{Fault: fault}
	}
	s := StreamStanding{Messages: info.State.Msgs, Bytes: info.State.Bytes, Wanted: info.Config.Replicas}
	if err := led(info.Cluster); err != nil {
		s.Fault = err.Error()
	}
	if info.Cluster == nil { // a single server
		info.Cluster = &jetstream.ClusterInfo{Leader: e.servers.Server()}
	}
	if s.Leader = info.Cluster.Leader; s.Leader != "" {
		s.Replicas = append(s.Replicas, ReplicaStanding{Server: s.Leader, Leads: true, Current: true})
	}
	for _, r := range info.Cluster.Replicas {
		s.Replicas = append(s.Replicas, ReplicaStanding{Server: r.Name, Current: r.Current, Offline: r.Offline, Lag: r.Lag})
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaStanding) int { return strings.Compare(a.Server, b.Server) })
	return s
}

// Servers returns how many streams each server leads, and of how many it has a copy.
func (s *Standing) Servers() (leads, copies map[string]int) {
	leads, copies = map[string]int{}, map[string]int{}
	for _, stream := range s.Streams {
		if stream.Leader != "" {
			leads[stream.Leader]++
		}
		for _, r := range stream.Replicas {
			copies[r.Server]++
		}
	}
	return leads, copies
}

// lostAfter is how long a leader may receive nothing from a replica before the replica counts as
// lost. Live replicas send something every second.
const lostAfter = 5 * time.Second

// led returns nil if the stream has a leader that is in contact with a majority of the replicas.
// The name of the leader alone proves nothing, because a server that is cut off from the others
// still answers. At first such a server says that it is the leader. Once it has noticed that it is
// cut off, it says that there is no leader.
func led(c *jetstream.ClusterInfo) error {
	if c == nil {
		return nil // a single server
	}
	if c.Leader == "" {
		return errors.New("no leader")
	}
	heard := 1
	for _, r := range c.Replicas {
		if !r.Offline && r.Active < lostAfter {
			heard++
		}
	}
	if all := len(c.Replicas) + 1; heard <= all/2 {
		return fmt.Errorf("the leader hears %d of %d servers", heard, all)
	}
	return nil
}
