package trials

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/contract"
)

var grow = flag.Bool("trials.grow", false, "run TestGrowAndShrink, which takes about two minutes")

// Three nodes run under load and grow to five with the commands of docs/cluster.md. Then one node
// is removed while it runs, and one after it was killed. Every batch that was acknowledged is there
// once, and no publish waits for longer than an election.
func TestGrowAndShrink(t *testing.T) {
	if !*grow {
		t.Skip("takes long; make chaos runs it")
	}
	c := newCluster(t, "--rate-live", "0", "--demo=false")
	c.start(0, 1, 2)
	p := &publishers{t: t, c: c, over: make(chan struct{})}
	t.Cleanup(p.end)
	for range 6 {
		p.add()
	}
	c.mu.Lock()
	c.commands = append(c.commands, c.more...)
	c.nodes = append(c.nodes, nil, nil)
	c.mu.Unlock()
	c.start(3, 4)
	p.report("two nodes joined")
	runWeir(t, "node", "shards", "8", "--data", c.commands[3][0])
	for range 6 {
		p.add() // their streams may be in the added shards
	}
	p.report("the store has more shards")
	t.Log(runWeir(t, "node", "balance", "--data", c.commands[1][0]))
	p.report("the copies were balanced")
	for _, n := range nodesOf(t, c.commands[0][0]).Nodes {
		if n.Copies < 5 || n.Leads < 1 { // 27 copies and 9 leaders on 5 nodes
			t.Errorf("node %s has %d copies and leads %d shards", n.Name, n.Copies, n.Leads)
		}
	}

	p.leaves(0)
	t.Log(runWeir(t, "node", "rm", nodeNameOf(t, c, 0), "--data", c.commands[2][0]))
	<-c.node(0).exited
	p.report("a node was removed")
	if out, err := exec.Command(helperProgram(t), append([]string{"serve", "--data"}, c.commands[0]...)...).CombinedOutput(); err == nil || !strings.Contains(string(out), "was removed from the cluster") {
		t.Errorf("the removed node starts again: error %v, output %s", err, out)
	}
	p.leaves(1)
	c.node(1).kill()
	p.report("a node was killed")
	t.Log(runWeir(t, "node", "rm", nodeNameOf(t, c, 1), "--force", "--data", c.commands[2][0]))
	p.report("the killed node was removed")
	if left := nodesOf(t, c.commands[2][0]); left.Connected != 3 || left.Expected != 3 || len(left.Nodes) != 3 {
		t.Errorf("the nodes are %+v, want three", left)
	}
	out, err := exec.Command(helperProgram(t), "node", "rm", nodeNameOf(t, c, 3), "--data", c.commands[2][0]).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "2 connected nodes would remain, and each shard has 3 copies") {
		t.Errorf("a third node is removed: error %v, output %s", err, out)
	}
	p.check()
}

// electionAtMost is how long shards may be without a leader, and some time for slow machines.
const electionAtMost = 15 * time.Second

// publishers publish to a stream each, through any node, until the test ends.
type publishers struct {
	t    *testing.T
	c    *cluster
	over chan struct{}
	stop sync.Once // closes the channel over
	work sync.WaitGroup
	gone [5]atomic.Bool // nodes that are removed or about to be

	all []*publisher
}

type publisher struct {
	stream  string
	acked   []string // the event of each sequence, in order
	longest atomic.Int64
}

// leaves says that a node is about to stop. Publishers then use other nodes.
func (p *publishers) leaves(node int) { p.gone[node].Store(true) }

// add creates a stream and starts to publish to it.
func (p *publishers) add() {
	p.t.Helper()
	client := contract.HTTP1()
	p.t.Cleanup(client.CloseIdleConnections)
	at := func(n int) *caller {
		for { // a node that has not started or is gone does not count
			if s := p.c.node(n); s != nil && !p.gone[n%5].Load() {
				return &caller{s.url, client}
			}
			n++
		}
	}
	one := &publisher{stream: contract.NewID()}
	if out, status, b := at(len(p.all)).ask(p.t.Context(), "POST", "/v1/streams", `{"name":"grows","id":"`+one.stream+`"}`, nil); out != done {
		p.t.Fatalf("create a stream: %d %s", status, b)
	}
	first := len(p.all)
	p.all = append(p.all, one)
	ctx := context.Background()
	p.work.Go(func() {
		for last := time.Now(); ; last = time.Now() {
			event := fmt.Sprint(one.stream, "-", len(one.acked))
			for n := first + len(one.acked); ; n++ {
				select {
				case <-p.over:
					return
				default:
				}
				out, status, ack := at(n).publish(ctx, contract.NextPath(one.stream), event, `["`+event+`"]`)
				if out == refused {
					p.t.Errorf("a publish was refused with %d", status)
					return
				}
				if out == done {
					if int(ack.Seq) != len(one.acked)+1 {
						p.t.Errorf("batch %d got the sequence %d", len(one.acked)+1, ack.Seq)
					}
					break
				}
			}
			one.acked = append(one.acked, event)
			one.longest.Store(max(one.longest.Load(), int64(time.Since(last))))
		}
	})
}

// report logs the longest time without an acknowledgement since the last report, and fails if it is
// longer than an election.
func (p *publishers) report(what string) {
	p.t.Helper()
	longest := time.Duration(0)
	for _, one := range p.all {
		longest = max(longest, time.Duration(one.longest.Swap(0)))
	}
	p.t.Logf("%s: the longest publish took %v", what, longest.Round(time.Millisecond))
	if longest > electionAtMost {
		p.t.Errorf("%s: a publish took %v", what, longest)
	}
}

// end ends the publishers.
func (p *publishers) end() {
	p.stop.Do(func() { close(p.over) })
	p.work.Wait()
}

// check ends the publishers, and reads all that was acknowledged on the remaining nodes.
func (p *publishers) check() {
	p.end()
	client := contract.HTTP1()
	p.t.Cleanup(client.CloseIdleConnections)
	ctx, total := p.t.Context(), 0
	for i, one := range p.all {
		from := &caller{p.c.node(2 + i%3).url, client}
		var s struct{ Cursor int }
		out, status, b := from.ask(ctx, "GET", "/v1/streams/"+one.stream, "", nil)
		if err := json.Unmarshal(b, &s); out != done || err != nil || s.Cursor != len(one.acked) {
			p.t.Errorf("stream %s: %d %s, want the cursor %d", one.stream, status, b, len(one.acked))
		}
		for i, event := range one.acked {
			_, status, b := from.ask(ctx, "GET", fmt.Sprint("/v1/streams/", one.stream, "/batches/", i+1), "", nil)
			if !strings.Contains(string(b), `"`+event+`"`) {
				p.t.Fatalf("batch %d of stream %s: %d %s, want %q", i+1, one.stream, status, b, event)
			}
		}
		total += len(one.acked)
	}
	p.t.Logf("all %d acknowledged batches of %d streams are there once", total, len(p.all))
}

// runWeir runs weir and returns what it printed.
func runWeir(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(helperProgram(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// nodeNameOf returns the name by which the other nodes know a node.
func nodeNameOf(t *testing.T, c *cluster, node int) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(c.commands[node][0], "nats.node"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// listedNodes is what weir node ls prints.
type listedNodes struct {
	Connected, Expected int
	Nodes               []struct {
		Name          string
		Leads, Copies int
	}
}

func nodesOf(t *testing.T, data string) (all listedNodes) {
	t.Helper()
	if err := json.Unmarshal([]byte(runWeir(t, "node", "ls", "--json", "--data", data)), &all); err != nil {
		t.Fatal(err)
	}
	return all
}
