package trials

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/faultnet"
)

// healWithin is how long a cluster may take to notice a full disk, or to recover from one. It is
// long, because the machine may be busy.
const healWithin = 2 * time.Minute

// smallNodeDisk mounts a small disk for the data of a node, of this many MiB. It skips the test if
// this process may not mount.
func smallNodeDisk(t *testing.T, c *cluster, node, mib int) *faultnet.Disk {
	t.Helper()
	data := c.commands[node][0]
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := faultnet.MountDisk(data, mib)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// oneStream is a cluster with one stream, to which the test publishes through any node.
type oneStream struct {
	*cluster
	client    *http.Client
	id        string
	published int64 // number of acknowledged batches
}

// startOnSmallDisks starts a cluster whose first nodes have a small disk, and creates the stream.
func startOnSmallDisks(t *testing.T, small int) (s *oneStream, disks []*faultnet.Disk) {
	t.Helper()
	c := newCluster(t, "--https", "off", "--rate-anonymous", "0", "--demo=false")
	for i := range small {
		disks = append(disks, smallNodeDisk(t, c, i, 32))
	}
	c.start(0, 1, 2)
	s = &oneStream{cluster: c, client: contract.HTTP1(), id: contract.NewID()}
	t.Cleanup(func() { // runs before the disks are unmounted
		s.client.CloseIdleConnections()
		for i := range c.nodes {
			c.node(i).kill() // stopping all nodes together would take longer than the rest of the test
		}
	})
	if out, status, b := s.on(2).ask(context.Background(), "POST", "/v1/streams", `{"name":"full","id":"`+s.id+`"}`, nil); out != done {
		t.Fatalf("create: %d %s", status, b)
	}
	return s, disks
}

func (s *oneStream) on(i int) *caller { return &caller{s.node(i).url, s.client} }

// publish publishes the next batch through a node, and reports whether it was acknowledged.
func (s *oneStream) publish(i int) bool {
	next := s.published + 1
	out, _, _ := s.on(i).publish(context.Background(), contract.SeqPath(s.id, next), "", fmt.Sprintf(`["%d"]`, next))
	if out == done {
		s.published = next
	}
	return out == done
}

// check checks that a node has all acknowledged batches.
func (s *oneStream) check(t *testing.T, i int) {
	t.Helper()
	if all, cursor := s.on(i).readAllOf(t, s.id); cursor != s.published || int64(len(all)) != s.published {
		t.Errorf("node %d has %d batches up to %d, want %d", i, len(all), cursor, s.published)
	}
}

// The disks of two of three nodes fill up until their NATS servers disable JetStream. Both nodes
// say that they are not ready. While only one disk is full, the other nodes accept batches. When
// the disks have space again, all nodes accept batches, without a restart of a process, and no
// acknowledged batch is lost.
func TestFullDisks(t *testing.T) {
	t.Parallel() // the test mostly waits
	c, disks := startOnSmallDisks(t, 2)
	ctx := context.Background()
	health := func(i int) int { _, status, _ := c.on(i).ask(ctx, "GET", "/v1/health", "", nil); return status }
	for i := range c.nodes {
		if !c.publish(i) {
			t.Fatalf("node %d refused a batch", i)
		}
	}

	notReady := func(i int) {
		t.Helper()
		contract.Eventually(t, healWithin, fmt.Sprintf("node %d is not ready", i), func() bool { return health(i) == 503 })
	}
	for i, d := range disks {
		if err := d.Fill(); err != nil {
			t.Fatal(err)
		}
		notReady(i)
		if i == 0 {
			contract.Eventually(t, healWithin, "the other nodes continue", func() bool { return c.publish(2) })
		}
	}
	notReady(2)
	// Every read of a stream's state stores an empty message on all nodes. The loop repeats such
	// reads until the last block of each disk is used up.
	contract.Eventually(t, healWithin, "the NATS servers of both nodes have stopped", func() bool {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c.on(2).ask(within, "GET", "/v1/streams/"+c.id, "", nil)
		return strings.Contains(c.node(0).logged(), "stopped storing data") && strings.Contains(c.node(1).logged(), "stopped storing data")
	})
	if c.publish(2) {
		t.Error("a batch was acknowledged without a majority")
	}

	for _, d := range disks {
		if err := d.Free(); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	for i := range c.nodes {
		contract.Eventually(t, healWithin, fmt.Sprintf("node %d accepts batches again", i), func() bool { return c.publish(i) })
		contract.Eventually(t, healWithin, fmt.Sprintf("node %d is ready again", i), func() bool { return health(i) == 200 })
	}
	t.Logf("the cluster recovered %v after its disks had space again", time.Since(begun).Round(time.Millisecond))
	for i := range c.nodes {
		c.check(t, i)
	}
}

// A node that starts on a full disk says so and waits. When the disk has space again, the node
// continues to start. Meanwhile, the other nodes accept batches.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel() // the test mostly waits
	c, disks := startOnSmallDisks(t, 1)
	contract.Eventually(t, healWithin, "node 0 accepts batches", func() bool { return c.publish(0) })
	c.node(0).kill()
	if err := disks[0].Fill(); err != nil {
		t.Fatal(err)
	}
	s, err := launch(nil, program(t), c.commands[0][0], c.commands[0][1:]...)
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[0] = s
	contract.Eventually(t, healWithin, "node 0 says that it waits for its disk", func() bool {
		return strings.Contains(s.logged(), "this node starts as soon as its disk accepts writes")
	})
	contract.Eventually(t, healWithin, "the other nodes accept batches", func() bool { return c.publish(1) })
	select {
	case <-s.exited:
		t.Fatalf("node 0 has exited: %v", s.err)
	case <-s.ready:
		t.Fatal("node 0 is ready on a full disk")
	default:
	}
	if err := disks[0].Free(); err != nil {
		t.Fatal(err)
	}
	if err := s.await(); err != nil {
		t.Fatal(err)
	}
	contract.Eventually(t, healWithin, "node 0 accepts batches again", func() bool { return c.publish(0) })
	c.check(t, 0)
}
