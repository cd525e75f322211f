package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/dashboard"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// TestBrowser drives the dashboard in Chromium through the steps in testdata/browser/run.mjs.
// If PICTURES names a directory, the pictures of the manual are written there, and screenshots of
// every page to bin/screenshots.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("the browser test is slow")
	}
	browser, node := tools(t)
	var svc *testService
	// A gap that closes while the machine is busy would fail a step.
	svc = startServiceWith(t, servicetest.Options{Args: []string{"--gap-grace", "1h"}, Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/test/advance" { // the script moves the clock forward
				svc.clock.advance(dashboard.LastsFor)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	raw := svc.rawStream()
	dashboard.SetStore(svc.Dashboard, dashboard.Store{Journal: 64 << 20, Live: 5 << 20, Free: 60 << 30, Size: 100 << 30})
	dashboard.PastDay(svc.Dashboard, svc.clock.now())
	big := svc.bigStream() // this takes long, and SetStore must be called before the dashboard takes its first sample, so SetStore comes first
	troubled, empty := troubledService(t), emptyService(t)
	shots, err := filepath.Abs("../../bin/screenshots")
	svc.must(err)
	ctx := context.Background()
	if end, limited := t.Deadline(); limited { // stop a little before it, so that the test can print what the script has done
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-30*time.Second))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, node, "run.mjs")
	cmd.Dir = "testdata/browser"
	cmd.Env = append(os.Environ(), "URL="+svc.HTTP, "STREAM="+string(svc.stream), "RAW="+string(raw), "BIG="+string(big), "KEY="+svc.key, "PASSWORD="+password,
		"TROUBLED="+troubled.HTTP, "EMPTY="+empty.HTTP, "SHOTS="+shots, "CHROMIUM="+browser)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("browser script failed: %v", err)
	}
	if pictures := os.Getenv("PICTURES"); pictures != "" && err == nil {
		svc.must(shrink(shots, pictures))
	}
	if log := svc.log(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "panic") {
		t.Errorf("the log contains errors:\n%s", log)
	}
}

// tools finds Chromium and Node, and skips the test if something is missing.
func tools(t *testing.T) (browser, node string) {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	node, err := exec.LookPath("node")
	switch _, missing := os.Stat("testdata/browser/node_modules/playwright-core"); {
	case browser == "":
		t.Skip("Chromium is not installed; run tools/browser to install it")
	case err != nil:
		t.Skip("Node is not installed; it drives the browser")
	case missing != nil:
		t.Skip("playwright-core is not installed; run tools/browser to install it")
	}
	return browser, node
}

// troubledService starts a server whose dashboard is that of a cluster with 1,000 streams, a missing
// node and a full disk.
func troubledService(t *testing.T) *testService {
	svc := startService(t)
	for i := range 1000 {
		svc.newStream(fmt.Sprintf("reading of sensor %d in the northern hall, second floor", i), weir.JSON)
	}
	dashboard.SetStore(svc.Dashboard, dashboard.Store{Journal: 99 << 30, Live: 98 << 30, Free: 40 << 20, Size: 100 << 30})
	svc.Dashboard.Nodes = func() dashboard.Nodes {
		return dashboard.Nodes{Connected: 2, Expected: 3, List: []dashboard.Node{
			{Name: "ant", This: true, State: "full", Reason: "write journal/00000017.log: no space left on device", Version: "1.2.3", Ahead: 3 * time.Millisecond, Free: 40 << 20, Size: 100 << 30},
			{Name: "bee-with-a-long-name.eu-central-1.internal.example.com", State: dashboard.NodeReady, Version: "1.2.3", Ahead: -2 * time.Second, Free: 40 << 30, Size: 100 << 30, Silent: time.Second},
			{Name: "cat", State: dashboard.NodeMissing, Version: "1.2.3", Free: 15 << 30, Size: 100 << 30, Silent: 2 * time.Minute},
		}}
	}
	svc.Dashboard.Cluster = func() string { return "All shards are led." }
	svc.Dashboard.Troubles = func() []dashboard.Trouble {
		return []dashboard.Trouble{
			{Kind: dashboard.TroubleFull, Bad: true, State: "The store is full.", Reason: "The server refuses publishes and new streams that do not fit into the space that is left (503). Reading, deleting and revoking work.", Remedy: "Free space, delete streams, or use a larger disk."},
			{Kind: "nodes", State: "2 of 3 nodes are connected.", Reason: "The cluster accepts writes as long as more than half of its nodes are connected.", Remedy: "Start the missing node again, or check its network."},
		}
	}
	return svc
}

// emptyService starts a server without streams and without requests.
func emptyService(t *testing.T) *testService {
	svc := startService(t)
	for _, s := range svc.Hub.Streams() {
		svc.must(s.Delete(context.Background()))
	}
	return svc
}

// rawStream creates a raw stream whose first batches were evicted.
func (svc *testService) rawStream() weir.StreamID {
	ctx := context.Background()
	o, err := svc.Hub.Create(ctx, hub.Spec{Project: svc.Project, Name: "sensor", RetentionSeconds: 3600, MaxBytes: weir.MinMaxBytes, Mode: weir.Raw})
	svc.must(err)
	s, err := svc.Hub.Stream(o.ID)
	svc.must(err)
	for range 8 {
		payload := append([]byte{0xff, 0, 'h', 'i', '<', 'b', '>'}, make([]byte, 300<<10)...)
		_, err := s.Publish(ctx, &hub.Publish{Batch: weir.Batch{Events: 1, ContentType: "application/octet-stream", Payload: payload}})
		svc.must(err)
	}
	return o.ID
}

// bigStream creates a stream of 100,000 small batches and one of 8 MiB.
func (svc *testService) bigStream() weir.StreamID {
	s := svc.newStream("orders of a year", weir.JSON)
	for i := range 100_000 {
		text := fmt.Sprintf(`[{"name":"order %d"}]`, i+1)
		if i == 0 || i == 49_999 || i == 99_998 {
			text = fmt.Sprintf(`[{"name":"order %d","note":"a needle %d"}]`, i+1, i+1)
		}
		svc.store(s, weir.Seq(i+1), text, 1)
	}
	var large strings.Builder
	large.WriteString(`[{`)
	for i := 0; large.Len() < 8<<20-200; i++ {
		fmt.Fprintf(&large, `"a%d":{"value":%d,"text":"%s"},`, i, i, strings.Repeat("x", 40))
	}
	large.WriteString(`"end":true}]`)
	svc.store(s, 100_001, large.String(), 1)
	return s.ID
}
