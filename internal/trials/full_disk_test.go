package trials

import (
	"context"
	"fmt"
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

// The disks of two of three nodes fill up until their NATS servers disable JetStream. Both nodes
// say that they are not ready. While only one disk is full, the other nodes accept batches. When
// the disks have space again, all nodes accept batches, without a restart of a process, and no
// acknowledged batch is lost.
func TestFullDisks(t *testing.T) {
	t.Parallel() // the test mostly waits
	c := newCluster(t, "--https", "off", "--rate-anonymous", "0", "--demo=false")
	disks := []*faultnet.Disk{smallNodeDisk(t, c, 0, 32), smallNodeDisk(t, c, 1, 32)}
	c.start(0, 1, 2)
	t.Cleanup(func() { // runs before the disks are unmounted
		for i := range c.nodes {
			c.node(i).kill() // stopping all nodes together would take longer than the rest of the test
		}
	})
	ctx, client := context.Background(), contract.HTTP1()
	t.Cleanup(client.CloseIdleConnections)
	on := func(i int) *caller { return &caller{c.node(i).url, client} }
	health := func(i int) int { _, status, _ := on(i).ask(ctx, "GET", "/v1/health", "", nil); return status }
	id := contract.NewID()
	if out, status, b := on(2).ask(ctx, "POST", "/v1/streams", `{"name":"full","id":"`+id+`"}`, nil); out != done {
		t.Fatalf("create: %d %s", status, b)
	}
	published := int64(0)
	publish := func(i int) bool {
		out, _, _ := on(i).publish(ctx, contract.SeqPath(id, published+1), "", fmt.Sprintf(`["%d"]`, published+1))
		if out == done {
			published++
		}
		return out == done
	}
	for i := range c.nodes {
		if !publish(i) {
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
			contract.Eventually(t, healWithin, "the other nodes continue", func() bool { return publish(2) })
		}
	}
	notReady(2)
	// Every read of a stream's state stores an empty message on all nodes. The loop repeats such
	// reads until the last block of each disk is used up.
	contract.Eventually(t, healWithin, "the NATS servers of both nodes have stopped", func() bool {
		within, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		on(2).ask(within, "GET", "/v1/streams/"+id, "", nil)
		return strings.Contains(c.node(0).logged(), "stopped storing data") && strings.Contains(c.node(1).logged(), "stopped storing data")
	})
	if publish(2) {
		t.Error("a batch was acknowledged without a majority")
	}

	for _, d := range disks {
		if err := d.Free(); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	for i := range c.nodes {
		contract.Eventually(t, healWithin, fmt.Sprintf("node %d accepts batches again", i), func() bool { return publish(i) })
		contract.Eventually(t, healWithin, fmt.Sprintf("node %d is ready again", i), func() bool { return health(i) == 200 })
	}
	t.Logf("the cluster recovered %v after its disks had space again", time.Since(begun).Round(time.Millisecond))
	for i := range c.nodes {
		if all, cursor := on(i).readAllOf(t, id); cursor != published || int64(len(all)) != published {
			t.Errorf("node %d has %d batches up to %d, want %d", i, len(all), cursor, published)
		}
	}
}
