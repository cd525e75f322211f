package service_test

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/admin"
	"weir/internal/hub"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// startNode starts a node that reaches a NATS server at the given URL.
func startNode(t *testing.T, nats natstest.Server, url string, now func() time.Time) *servicetest.Service {
	t.Helper()
	return servicetest.Start(t, servicetest.Options{
		Journal: true, // use the engine that Args name, and not the one in memory
		Args:    []string{"--engine", "nats", "--nats-url", url, "--nats-creds", nats.Creds, "--nats-system-creds", nats.SystemCreds, "--nats-replicas", "1"},
		Now:     now,
	})
}

// awaitSkewed waits until a node of a cluster lists another node whose clock is ahead.
func awaitSkewed(t *testing.T, s *servicetest.Service, ahead time.Duration) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(time.Minute); ; <-tick.C {
		var all admin.Nodes
		if err := admin.Ask(t.Context(), s.Data, "GET", "/nodes", nil, &all); err != nil {
			t.Fatal(err)
		}
		isSkewed := func(n admin.Node) bool {
			return n.State == "skewed" && math.Round(n.ClockAhead) == ahead.Seconds() && n.Version != "" && n.Free > 0
		}
		if slices.ContainsFunc(all.Nodes, isSkewed) {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("the node lists %+v, want a node whose clock is %v ahead", all, ahead)
		}
	}
}

// One of three nodes has a clock that is two hours ahead, and a stream keeps batches for one hour. A
// read and a publish on that node evict nothing on any node, and later batches get the right time.
func TestWrongClock(t *testing.T) {
	nats := natstest.Start(t, true)
	start := func(ahead time.Duration) *servicetest.Service {
		return startNode(t, nats, nats.URL, func() time.Time { return time.Now().Add(ahead) })
	}
	a, c := start(0), start(0)
	id := a.NewStream(hub.Spec{RetentionSeconds: 3600})
	ask := func(s *servicetest.Service, method, path, body string) (int, string) {
		t.Helper()
		return ask(t, s, a.Key, method, path, body)
	}
	publish, first := "/streams/"+string(id)+"/publish", "/streams/"+string(id)+"/batches/1"
	if code, text := ask(a, "POST", publish, `{"events":["kept"]}`); code != http.StatusAccepted {
		t.Fatalf("publish: %d %s", code, text)
	}

	b := start(2 * time.Hour)
	for _, s := range []*servicetest.Service{b, a, c} {
		if code, text := ask(s, "GET", first, ""); code != http.StatusOK {
			t.Errorf("read: %d %s", code, text)
		}
	}
	if code, text := ask(b, "POST", publish, `{"events":["refused"]}`); code != http.StatusServiceUnavailable || !strings.Contains(text, "clock") {
		t.Errorf("publish on the node with the wrong clock: %d %s", code, text)
	}
	if code, text := ask(b, "GET", "/health", ""); code != http.StatusServiceUnavailable {
		t.Errorf("health of the node with the wrong clock: %d %s", code, text)
	}
	if log := b.Log.String(); !strings.Contains(log, "the clock of this node is wrong: it is 2h0m0s ahead") {
		t.Errorf("the log does not say that the clock is wrong: %s", log)
	}
	awaitSkewed(t, a, 2*time.Hour)
	if code, text := ask(a, "POST", publish, `{"events":["later"]}`); code != http.StatusAccepted {
		t.Errorf("publish: %d %s", code, text)
	}
	for _, s := range []*servicetest.Service{c, a} {
		if code, text := ask(s, "GET", first, ""); code != http.StatusOK {
			t.Errorf("read: %d %s", code, text)
		}
	}
	code, text := ask(c, "GET", "/streams/"+string(id)+"/batches/2", "")
	var batch struct{ Ts time.Time }
	if err := json.Unmarshal([]byte(text), &batch); err != nil || code != http.StatusOK {
		t.Fatalf("read: %d %s", code, text)
	}
	if time.Until(batch.Ts) > time.Minute {
		t.Errorf("the next batch has the time %v", batch.Ts)
	}
}

// The clock of the cluster decides whether the lifetime of a stream under /ds has ended, and not the
// system clock of the node. With a system clock that is ahead, a node would answer 201 and store
// nothing. In this test the system clock is ahead of the clock of the cluster, which has one node.
func TestLifetimeByTheClockOfTheCluster(t *testing.T) {
	nats := natstest.Start(t, true)
	now := func() time.Time { return time.Now().Add(-3 * time.Hour) }
	s := startNode(t, nats, nats.URL, now)
	send := func(method string, fields ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+"/ds/hour", strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Key)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	expires := now().Add(time.Hour).UTC().Format(time.RFC3339)
	if code := send("PUT", "Content-Type", "text/plain", "Stream-Expires-At", expires); code != http.StatusCreated {
		t.Fatalf("create: %d", code)
	}
	if code := send("HEAD"); code != http.StatusOK {
		t.Errorf("a stream that expires in an hour: %d", code)
	}
}
