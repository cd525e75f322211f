package trials

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weir/internal/contract"
)

// weir migrate moves the data of a journal to a cluster without changing it: batches with their
// sequences, times and publishers, closed gaps, idempotency keys and revoked keys. It refuses a
// cluster that is in use.
func TestMigrate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	old := serve(t, t.TempDir(), "--https", "off", "--gap-grace", "50ms", "--demo=false")
	from := &caller{old.url, contract.HTTP1()}
	revoked, revoke := old.newKey(t, contract.Key{Kind: "live"})
	revoke()
	id := contract.NewID()
	publish := func(c *caller, path, key, events string) contract.Ack {
		t.Helper()
		out, status, ack := c.publish(ctx, path, key, events)
		if out != done {
			t.Fatalf("publish to %s: %d", path, status)
		}
		return ack
	}
	create := func(c *caller, id string) {
		t.Helper()
		if out, status, b := c.ask(ctx, "POST", "/v1/streams", `{"name":"moved","id":"`+id+`"}`, nil); out != done {
			t.Fatalf("create: %d %s", status, b)
		}
	}
	create(from, id)
	for n := range int64(300) {
		if n != 7 { // leaves a gap, which closes after 50 ms
			publish(from, contract.SeqPath(id, n+1), "", fmt.Sprintf(`["%d"]`, n+1))
		}
	}
	publish(from, contract.SeqPath(id, 301), "", `["`+strings.Repeat("x", 3<<20)+`"]`)
	if status, name := from.publishAs(t, contract.SeqPath(id, 302), "the-first"); status != 202 || name != "the-first" {
		t.Errorf("a publish with a publisher got %d, %q", status, name)
	}
	keyed := publish(from, contract.NextPath(id), "the-key", `["keyed"]`)
	before, cursor := from.readAllOf(t, id)
	old.stop(t)

	node := serve(t, t.TempDir(), "--https", "off", "--engine", "nats", "--cluster-listen", "127.0.0.1:0", "--demo=false")
	to := &caller{node.url, contract.HTTP1()}
	create(to, contract.NewID())
	move := func() (string, error) {
		out, err := exec.Command(program(t), "migrate", old.data, "--data", node.data).CombinedOutput()
		return string(out), err
	}
	out, err := move()
	if err != nil || !strings.Contains(out, "1 streams") && !strings.Contains(out, "2 streams") {
		t.Fatalf("weir migrate: %v: %s", err, out)
	}
	after, at := to.readAllOf(t, id)
	if at != cursor || !slices.Equal(before, after) {
		t.Errorf("the journal had %d batches up to %d, the cluster has %d up to %d; if these are equal, the contents differ", len(before), cursor, len(after), at)
	}
	if again := publish(to, contract.NextPath(id), "the-key", `["another"]`); !again.Duplicate || again.Seq != keyed.Seq {
		t.Errorf("repeating an idempotency key got %+v, the first acknowledgement was %+v", again, keyed)
	}
	if status, name := to.publishAs(t, contract.SeqPath(id, 302), "another"); status != 200 || name != "the-first" {
		t.Errorf("publishing a stored sequence got %d and the publisher %q, want 200 and the-first", status, name)
	}
	if out, status, _ := to.publish(ctx, contract.SeqPath(id, 8), "", `[]`); out != refused || status != 409 {
		t.Errorf("publishing into a closed gap got %d, want 409", status)
	}
	if next := publish(to, contract.NextPath(id), "", `["next"]`); next.Seq != keyed.Seq+1 {
		t.Errorf("the next sequence is %d, want %d", next.Seq, keyed.Seq+1)
	}
	var refusal struct{ Error struct{ Code string } }
	_, status, b := to.ask(ctx, "GET", "/v1/streams", "", http.Header{"Authorization": {"Bearer " + revoked}})
	if json.Unmarshal(b, &refusal) != nil || refusal.Error.Code != "key_revoked" {
		t.Errorf("a revoked key got %d %s", status, b)
	}
	if out, err := move(); err == nil || !strings.Contains(out, "is in use") {
		t.Errorf("weir migrate to a cluster in use: %v: %s", err, out)
	}
}

// weir migrate moves the data of a cluster to a single server, and to another cluster, without
// changing it. It refuses a target that a single server is using, and a source that is not running.
func TestMigrateFromCluster(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	flags := []string{"--https", "off", "--gap-grace", "50ms", "--demo=false"}
	nats := append([]string{"--engine", "nats", "--cluster-listen", "127.0.0.1:0"}, flags...)
	old := serve(t, t.TempDir(), nats...)
	from := &caller{old.url, contract.HTTP1()}
	var ids []string
	for _, limit := range []string{"4294967296", "1048576"} { // the second stream evicts most of its batches
		id := contract.NewID()
		ids = append(ids, id)
		if out, status, b := from.ask(ctx, "POST", "/v1/streams", `{"name":"moved","id":"`+id+`","max_bytes":`+limit+`}`, nil); out != done {
			t.Fatalf("create: %d %s", status, b)
		}
		for n := range int64(40) {
			key := fmt.Sprint("key-", n)
			if out, status, _ := from.publish(ctx, contract.NextPath(id), key, `["`+strings.Repeat("x", 64<<10)+`"]`); out != done {
				t.Fatalf("publish: %d", status)
			}
		}
	}
	move := func(to string) (string, error) {
		out, err := exec.Command(program(t), "migrate", old.data, "--data", to).CombinedOutput()
		return string(out), err
	}
	same := func(name string, to *caller) {
		t.Helper()
		for _, id := range ids {
			before, cursor := from.readAllOf(t, id)
			after, at := to.readAllOf(t, id)
			if at != cursor || !slices.Equal(before, after) {
				t.Errorf("%s: the cluster has %d batches up to %d, the copy has %d up to %d; if these are equal, the contents differ", name, len(before), cursor, len(after), at)
			}
			if out, status, ack := to.publish(ctx, contract.NextPath(id), "key-0", `["another"]`); out != done || !ack.Duplicate || ack.Seq != 1 {
				t.Errorf("%s: repeating an idempotency key got %d %+v, want a duplicate of batch 1", name, status, ack)
			}
		}
	}
	data := t.TempDir()
	if out, err := move(data); err != nil || !strings.Contains(out, " streams, ") {
		t.Fatalf("weir migrate to a single server: %v: %s", err, out)
	}
	single := serve(t, data, flags...)
	same("single server", &caller{single.url, contract.HTTP1()})
	if out, err := move(data); err == nil || !strings.Contains(out, "a single server is using") {
		t.Errorf("weir migrate to a server that is running: %v: %s", err, out)
	}
	other := serve(t, t.TempDir(), nats...)
	if out, err := move(other.data); err != nil || !strings.Contains(out, " streams, ") || !strings.Contains(out, old.data+": ") {
		t.Fatalf("weir migrate to another cluster: %v: %s", err, out)
	}
	same("other cluster", &caller{other.url, contract.HTTP1()})
	old.stop(t)
	if out, err := move(t.TempDir()); err == nil || !strings.Contains(out, "which belongs to a node of a cluster") {
		t.Errorf("weir migrate from a cluster that is not running: %v: %s", err, out)
	}
}

// publishAs publishes an empty batch under the name of a publisher. It returns the status and the
// publisher that the acknowledgement names.
func (c *caller) publishAs(t *testing.T, path, name string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, c.url+path, strings.NewReader(`{"events":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + liveKey}, "Content-Type": {"application/json"}, "X-Svc-Publisher": {name}}
	resp, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("X-Svc-Publisher")
}
