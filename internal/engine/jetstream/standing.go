package jetstream

import (
	"context"
	"sync"
	"time"
)

// Standing is how the servers stand behind a store.
type Standing struct {
	Shards   int    // JetStream streams that hold it, that of the documents included
	Led      int    // of them: by the server that was named
	Headless int    // of them: nobody leads, or nobody answers; nothing can be written to those
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
			all.Replicas++ // who leads
			c := s.CachedInfo().Cluster
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
