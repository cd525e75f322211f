package trials

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"weir/internal/contract"
)

// Three nodes run under load, each on its own machine, and the test partitions their network. There
// are clients on all sides. Two nodes that reach each other continue. A node that is alone
// acknowledges nothing, reports that it is not ready, and returns no cursor; its subscribers lose
// no batch. After the partition every node has the acknowledged batches, once and in order, and
// every subscriber saw exactly these batches. All responses in between are consistent with a single
// copy of the stream (D3, D4, D5, D25).
func TestPartition(t *testing.T) {
	t.Parallel()
	r, _ := seeded(t)
	n := newNetwork(t, 3)
	c := newCluster(t, "--gap-grace", "5m", "--rate-live", "0", "--demo=false")
	n.place(c)
	c.start(0, 1, 2)
	p := &partition{n: n, chaos: &chaos{t: t, c: c, r: r, client: n.client(), quit: make(chan struct{}), over: make(chan struct{}), pauses: map[string]time.Duration{}, rest: 50 * time.Millisecond}}
	p.begin(2, 2)
	for i := range c.nodes {
		p.homes = append(p.homes, p.add(&track{stays: true, home: i, keyed: r.IntN(2) == 0, seen: make([][]sighting, len(c.nodes))}, 1))
	}
	h := newWitness(p.chaos, 2)
	p.isolate(r.IntN(3))
	p.settle()
	h.check()
	p.verify()
}

// partition is a cluster under load whose network is cut.
type partition struct {
	*chaos
	n     *network
	homes []*track // one stream per node; the writers of the stream use only this node
}

// linksBetween returns the links between two nodes, in both directions.
func linksBetween(a, b int) []link { return []link{{a, b}, {b, a}} }

// linksOf returns all links to and from a node.
func linksOf(a int) []link { return append(linksBetween(a, (a+1)%3), linksBetween(a, (a+2)%3)...) }

// isolate cuts one node off. It checks what this node and the other nodes do, and then restores the
// network.
func (p *partition) isolate(node int) {
	p.t.Helper()
	p.flows()
	left, right := (node+1)%3, (node+2)%3
	there := contract.NewT(p.t, p.target(node))
	stream, own := there.CreateBody(`{"name":"apart"}`).ID, p.homes[node].id
	here, since := contract.NewT(p.t, p.target(left)), time.Now()
	p.n.cut(linksOf(node)...)
	p.t.Run("apart", func(t *testing.T) {
		for what, holds := range map[string]func(t *testing.T, there, here *contract.T){
			"the other nodes continue": func(t *testing.T, _, _ *contract.T) {
				p.flow(t, p.homes[left], p.homes[right])
				t.Logf("after %v", time.Since(since).Round(time.Millisecond))
				p.ready(t, left, 200)
				p.ready(t, right, 200)
			},
			"the isolated node is not ready": func(t *testing.T, _, _ *contract.T) {
				p.ready(t, node, 503)
				t.Logf("after %v", time.Since(since).Round(time.Millisecond))
			},
			"the isolated node acknowledges nothing": func(_ *testing.T, there, here *contract.T) {
				there.Post(contract.NextPath(stream), contract.JSONBody(`{"events":["first"]}`), contract.Idempotent("k")).Refused(503, "storage_unavailable")
				here.Post(contract.NextPath(stream), contract.JSONBody(`{"events":["second"]}`), contract.Idempotent("k")).Want(202)
			},
			"the isolated node returns no cursor": func(_ *testing.T, there, _ *contract.T) {
				there.Get("/v1/streams/"+own+"/cursor").Refused(503, "storage_unavailable")
			},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				there, here := *there, *here
				there.T, here.T = t, t
				holds(t, &there, &here)
			})
		}
	})
	if p.t.Failed() {
		p.t.FailNow()
	}
	p.t.Logf("cut off node %d for %v", node, time.Since(since).Round(time.Millisecond))
	since = time.Now()
	p.n.heal()
	p.flows()
	p.t.Logf("all streams accept batches after %v", time.Since(since).Round(time.Millisecond))
	p.ready(p.t, node, 200)
	k := there.Ack(there.Post(contract.NextPath(stream), contract.JSONBody(`{"events":["third"]}`), contract.Idempotent("k")).Want(200), stream)
	if k != (contract.Ack{StreamID: stream, Seq: 1, Accepted: 1, Cursor: 1, Duplicate: true}) {
		p.t.Errorf("repeating a publish that another node stored got %+v", k)
	}
}

// target returns a node as a target of the contract suite. The node may be cut off from its store.
func (p *partition) target(node int) contract.Target {
	target := p.c.node(node).target()
	target.Client, target.Apart = func() *http.Client { return p.client }, true
	return target
}

// ready waits until a node returns this status for two requests: for its readiness on the
// operator's address, and for its health on the public address.
func (p *partition) ready(t *testing.T, node, status int) {
	t.Helper()
	for _, url := range []string{"http://" + p.n.operator[node] + "/readyz", p.c.node(node).url + "/v1/health"} {
		contract.Eventually(t, time.Minute, fmt.Sprintf("%s of node %d is %d", url, node, status), func() bool {
			resp, err := p.client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			io.Copy(io.Discard, resp.Body)
			return resp.StatusCode == status
		})
	}
}
