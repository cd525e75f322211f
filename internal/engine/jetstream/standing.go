package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Standing describes the state of the servers that hold a store.
type Standing struct {
	Shards int // number of JetStream streams of the store, including the stream of the documents
	Led    int // number of streams that are led by the server named in the call of Stand
	// Headless is the number of streams that accept no writes: they have no leader that is in
	// contact with a majority of the replicas, or no server answered.
	Headless int
	Replicas int    // total number of copies of the streams, as far as known
	Behind   int    // number of these copies that are offline or not up to date
	Lag      uint64 // number of messages missing on the copy that is furthest behind
	Bytes    uint64 // total size of the streams whose servers answered, counting one copy of each
}

// Counts are the numbers of events since the engine was opened.
type Counts struct {
	Opens     uint64 // logs that were opened
	Conflicts uint64 // writes to a log that came too late, because another node had written first
	Resends   uint64 // writes to a log that were sent again, because no server answered in time
}

type counts struct{ opens, conflicts, resends atomic.Uint64 }

// Counts returns the numbers of events so far.
func (e *Engine) Counts() Counts {
	return Counts{Opens: e.counts.opens.Load(), Conflicts: e.counts.conflicts.Load(), Resends: e.counts.resends.Load()}
}

// standWithin is how long servers may take to answer.
const standWithin = time.Second

// Stand asks for the state of every stream. The parameter leader is the name of a server;
// Standing.Led counts the streams that this server leads.
func (e *Engine) Stand(ctx context.Context, leader string) Standing {
	ctx, cancel := context.WithTimeout(ctx, standWithin)
	defer cancel()
	names := []string{e.docs.stream}
	for _, s := range e.shards {
		names = append(names, s.stream)
	}
	all := Standing{Shards: len(names)}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, name := range names {
		asked.Go(func() {
			s, err := e.servers.Stream(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all.Headless++
				return
			}
			all.Bytes += s.State.Bytes
			c := s.Cluster
			if led(c) != nil {
				all.Headless++
			}
			if c == nil || c.Leader != "" {
				all.Replicas++ // the copy of the leader, which is not in c.Replicas
			}
			if c == nil {
				return
			}
			if c.Leader == leader && leader != "" {
				all.Led++
			}
			for _, r := range c.Replicas {
				all.Replicas++
				all.Lag = max(all.Lag, r.Lag)
				if !r.Current || r.Offline {
					all.Behind++
				}
			}
		})
	}
	asked.Wait()
	return all
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
