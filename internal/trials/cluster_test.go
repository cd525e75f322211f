package trials

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir/internal/contract"
)

// cluster is a set of nodes with one store. Each node is a real process with an embedded NATS
// server.
type cluster struct {
	t        testing.TB
	commands [][]string                // for each node its data directory and flags
	more     [][]string                // the same for nodes that may join later
	inside   func(node int, do func()) // calls the function do in the network namespace of a node; nil if nodes have no namespace of their own
	clocks   []*wrongClock             // for each node its clock; nil if the test sets no clock

	mu    sync.Mutex
	nodes []*server
}

// clusterBase is the --base-url of every node.
const clusterBase = "http://cluster.test"

// newCluster prepares three nodes with the commands of docs/cluster.md and further flags. At the
// end of the test it stops the nodes that are still running.
func newCluster(t testing.TB, flags ...string) *cluster {
	t.Helper()
	commands := documentedCommands(t)
	for i := range commands {
		commands[i] = append(commands[i], flags...)
	}
	c := &cluster{t: t, commands: commands[:3:3], more: commands[3:]}
	c.nodes = make([]*server, len(c.commands))
	t.Cleanup(func() {
		var all sync.WaitGroup
		for _, s := range c.nodes {
			if s != nil {
				all.Go(func() { s.stop(t) })
			}
		}
		all.Wait()
		for _, s := range c.nodes {
			if s != nil && (hasOwnRace(s.logged()) || strings.Contains(s.logged(), "panic:")) {
				t.Errorf("data race or panic in a node's log:\n%s", s.logged())
			}
			if s != nil && t.Failed() {
				for line := range strings.Lines(s.logged()) {
					if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, `"level":"WARN"`) {
						t.Log(line)
					}
				}
			}
		}
	})
	return c
}

// start starts the nodes at the same time and waits until all are ready. It cannot start them one
// after the other, because a node is ready only when a majority of the nodes runs.
func (c *cluster) start(nodes ...int) {
	c.t.Helper()
	var all sync.WaitGroup
	for _, i := range nodes {
		all.Go(func() {
			if err := c.startOne(i); err != nil {
				c.t.Errorf("node %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// startOne starts a node and waits until it is ready.
func (c *cluster) startOne(i int) error {
	c.t.Helper()
	var s *server
	var err error
	var path string
	var env []string
	if c.clocks == nil {
		path = program(c.t)
	} else {
		path, env = shiftedProgram(c.t), []string{c.clocks[i].env()}
	}
	do := func() { s, err = startWith(env, path, c.commands[i][0], c.commands[i][1:]...) }
	if c.inside == nil {
		do()
	} else {
		c.inside(i, do)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i] = s
	return nil
}

// node returns a node by its index, modulo the number of nodes.
func (c *cluster) node(i int) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i%len(c.nodes)]
}

// spread is an HTTP transport that sends each request to the next node in turn.
type spread struct {
	c    *cluster
	next atomic.Uint64
	http.RoundTripper
}

func (s *spread) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := url.Parse(s.c.node(int(s.next.Add(1))).url)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, to.Host
	return s.RoundTripper.RoundTrip(r)
}

func (s *spread) CloseIdleConnections() {
	if c, ok := s.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// newKey creates a key and waits until every node knows it. The function that it returns revokes
// the key and waits in the same way.
func (c *cluster) newKey(t testing.TB, k contract.Key) (string, func()) {
	t.Helper()
	made, revoke := c.node(0).newKey(t, k)
	c.agree(t, made, func(status int) bool { return status != 401 })
	return made, func() {
		t.Helper()
		revoke()
		c.agree(t, made, func(status int) bool { return status == 401 })
	}
}

// agree sends requests with the key to every node, until the function wanted returns true for the
// status of each node's response.
func (c *cluster) agree(t testing.TB, key string, wanted func(status int) bool) {
	t.Helper()
	for i := range c.nodes {
		contract.Eventually(t, contract.Patience, fmt.Sprintf("node %d knows of the change to a key", i), func() bool {
			req, err := http.NewRequest("GET", c.node(i).url+"/v1/nowhere", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return wanted(resp.StatusCode)
		})
	}
}

// The test starts three nodes with the commands of docs/cluster.md. It runs the contract suite with
// its requests spread over the nodes: every node must give the same responses. With -trials.slow
// the suite also runs on each node alone.
func TestContractCluster(t *testing.T) {
	c := newCluster(t, "--gap-grace", "2s", "--rate-anonymous", "0", "--rate-demo", "0", "--base-url", clusterBase)
	c.start(0, 1, 2)
	target := contract.Target{
		BaseURL: c.node(0).url, DocBase: clusterBase, Live: liveKey, OtherLive: otherKey, Test: testKey, NewKey: c.newKey, NewToken: c.node(0).newToken, Demo: true, Light: true, Slow: *slow, Spread: true,
		Client: func() *http.Client {
			client := contract.HTTP1()
			client.Transport = &spread{c: c, RoundTripper: client.Transport}
			return client
		},
	}
	t.Run("spread", func(t *testing.T) { contract.Run(t, target) })
	for i := range c.nodes {
		t.Run(fmt.Sprint("node ", i), func(t *testing.T) {
			if !*slow {
				t.Skip("takes long; -trials.slow runs it")
			}
			target := c.node(i).target()
			target.Light, target.DocBase = true, clusterBase
			contract.Run(t, target)
		})
	}
	t.Run("a node leaves", func(t *testing.T) { nodeLeaves(t, c, 2) })
}
