package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

const (
	// standWithin is how long servers may take to answer.
	standWithin = time.Second
	// standFor is how long Stand returns the same result. The dashboard and the metrics may ask at
	// any rate, but a question costs the servers one request per stream.
	standFor = 2 * time.Second
	// standAtOnce is how many streams Stand asks about at the same time.
	standAtOnce = 32
)

// Stand returns the state of every stream of the store. The result is at most two seconds old.
func (c *Copies) Stand(ctx context.Context) Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) >= standFor || len(c.all.Streams) != len(c.Names()) {
		c.all = c.ask(ctx)
		c.at = time.Now()
	}
	return c.all
}

// ask asks the servers for the state of every stream.
func (c *Copies) ask(ctx context.Context) Standing {
	ctx, cancel := context.WithTimeout(ctx, standWithin)
	defer cancel()
	names := c.Names()
	all := Standing{Streams: make([]StreamStanding, len(names))}
	var asked sync.WaitGroup
	places := make(chan struct{}, standAtOnce)
	for i, name := range names {
		places <- struct{}{}
		asked.Go(func() {
			all.Streams[i] = c.askStream(ctx, name)
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
func (c *Copies) askStream(ctx context.Context, name string) StreamStanding {
	info, err := c.client.Stream(ctx, name)
	if err != nil {
		fault := "no server answered"
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			fault = "its stream " + name + " does not exist"
		}
		return StreamStanding{Fault: fault}
	}
	s := StreamStanding{Messages: info.State.Msgs, Bytes: info.State.Bytes, Wanted: info.Config.Replicas}
	if err := Led(info.Cluster); err != nil {
		s.Fault = err.Error()
	}
	if info.Cluster == nil { // a single server
		info.Cluster = &jetstream.ClusterInfo{Leader: c.client.Server()}
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

// Servers returns two numbers for each server: how many streams it leads, and how many copies it
// has.
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

// Led returns nil if the stream has a leader that is in contact with a majority of the replicas.
// The name of the leader alone proves nothing, because a server that is cut off from the others
// still answers. At first such a server says that it is the leader. Once it has noticed that it is
// cut off, it says that there is no leader.
func Led(in *jetstream.ClusterInfo) error {
	if in == nil {
		return nil // a single server
	}
	if in.Leader == "" {
		return errors.New("no leader")
	}
	heard := 1
	for _, r := range in.Replicas {
		if !r.Offline && r.Active < lostAfter {
			heard++
		}
	}
	if all := len(in.Replicas) + 1; heard <= all/2 {
		return fmt.Errorf("the leader hears %d of %d servers", heard, all)
	}
	return nil
}
