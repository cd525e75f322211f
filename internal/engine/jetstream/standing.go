package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Standing is how the servers stand behind a store.
type Standing struct {
	Shards   int    // JetStream streams that hold it, that of the documents included
	Led      int    // of them: by the server that was named
	Headless int    // of them: nobody leads who hears most of the others, or nobody answers; nothing can be written to those
	Replicas int    // copies of all of them, as far as is known
	Behind   int    // of those: gone, or not up to date
	Lag      uint64 // messages that the one furthest behind lacks
}

// standWithin is how long servers may take to tell.
const standWithin = time.Second

// Stand asks how every shard stands. Leader is the name of a server, to count what it leads.
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
			s, err := e.js.Stream(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all.Headless++
				return
			}
			c := s.CachedInfo().Cluster
			if led(c) != nil {
				all.Headless++
			}
			if c == nil || c.Leader != "" {
				all.Replicas++ // who leads is not among the others
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

// silent is how long a leader may hear nothing of another replica before that one is gone: those that are there speak every second.
const silent = 5 * time.Second

// led is nil when somebody leads a stream and hears most of those that keep it. A server that is cut off from the others answers for
// it as well: that it leads, until it notices, and from then on that nobody does.
func led(c *jetstream.ClusterInfo) error {
	if c == nil {
		return nil // it is alone
	}
	if c.Leader == "" {
		return errors.New("nobody leads")
	}
	heard := 1
	for _, r := range c.Replicas {
		if !r.Offline && r.Active < silent {
			heard++
		}
	}
	if all := len(c.Replicas) + 1; heard <= all/2 {
		return fmt.Errorf("who leads hears %d of %d servers", heard, all)
	}
	return nil
}
