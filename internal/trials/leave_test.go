package trials

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/contract"
)

// nodeLeaves stops a node that has subscribers while clients publish. Each subscriber gets a retry
// time (D16) and continues on another node. It misses no batch and gets no batch twice. Publishers
// continue on the other nodes.
func nodeLeaves(t *testing.T, c *cluster, node int) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := contract.HTTP1()
	t.Cleanup(client.CloseIdleConnections)
	at := func(n int) *caller { return &caller{c.node(n).url, client} }
	stream := contract.NewID()
	if out, status, b := at(node).ask(ctx, "POST", "/v1/streams", `{"name":"leaves","id":"`+stream+`"}`, nil); out != done {
		t.Fatalf("create: %d %s", status, b)
	}
	audience := newAudience()
	var readers, writer sync.WaitGroup
	for i := range 10 {
		m := &member{name: fmt.Sprint("subscriber ", i), client: client, audience: audience}
		audience.members = append(audience.members, m)
		readers.Go(func() {
			for n := node; ctx.Err() == nil; n++ {
				m.url = c.node(n).url
				if err := m.subscribe(ctx, stream); err != nil {
					t.Errorf("%s: %v", m.name, err)
					cancel()
				}
				pause(ctx)
			}
		})
	}
	var over atomic.Bool
	var published int64
	var longest time.Duration
	writer.Go(func() {
		for last := time.Now(); !over.Load() && ctx.Err() == nil; last = time.Now() {
			key := fmt.Sprint("key-", published)
			for n := node; ctx.Err() == nil; n++ {
				out, status, _ := at(n).publish(ctx, contract.NextPath(stream), key, `["`+key+`"]`)
				if out == refused {
					t.Errorf("a publish was refused with %d", status)
				}
				if out != unknown {
					break
				}
			}
			published++
			longest = max(longest, time.Since(last))
		}
	})
	audience.reach(ctx, t, 20)
	begun := time.Now()
	c.node(node).stop(t)
	t.Logf("the node stopped in %v", time.Since(begun).Round(time.Millisecond))
	audience.reach(ctx, t, audience.slowest()+50)
	over.Store(true)
	writer.Wait()
	audience.reach(ctx, t, published)
	for _, m := range audience.members {
		if r := m.retry.Load(); r < 500 || r > 5000 {
			t.Errorf("%s got a retry time of %d ms, want 500 to 5000", m.name, r)
		}
	}
	cancel()
	readers.Wait()
	t.Logf("every subscriber saw all %d batches; the longest publish took %v", published, longest.Round(time.Millisecond))
	if resp, err := http.Get(c.node(node).url + "/v1/health"); err == nil {
		resp.Body.Close()
		t.Errorf("the stopped node answers with %d", resp.StatusCode)
	}
}
