package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
)

// The page of the cluster shows every node with its facts, and marks a missing node. Without a
// cluster there is no such page, and no link to it.
func TestCluster(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	if status, _, _ := b.get("/dashboard/cluster"); status != http.StatusNotFound {
		t.Errorf("without a cluster: %d, want 404", status)
	}
	if strings.Contains(b.see("/dashboard"), "/dashboard/cluster") {
		t.Error("the dashboard of a single server links to the page of the cluster")
	}
	all := dashboard.Nodes{Connected: 3, Expected: 3, List: []dashboard.Node{
		{Name: "ant", This: true, State: dashboard.NodeReady, Version: "1.2.3", Ahead: 3 * time.Millisecond, Free: 40 << 30, Size: 100 << 30},
		{Name: "bee", State: "full", Reason: "no space left", Version: "1.2.3", Ahead: -2 * time.Second, Free: 1 << 30, Size: 100 << 30, Silent: time.Second},
		{Name: "cat", State: dashboard.NodeReady, Version: "1.2.4", Size: 100 << 30, Silent: time.Second, Leads: 1, Copies: 2},
	}, Shards: []dashboard.Shard{
		{Name: "documents", Leader: "cat", Messages: 1000, Bytes: 1 << 20, Replicas: []dashboard.Replica{{Node: "ant", State: "behind", Lag: 17, Bad: true}, {Node: "cat", State: "leads"}}},
		{Name: "0", Fault: "no leader", Messages: 234, Bytes: 1 << 20, Replicas: []dashboard.Replica{{Node: "bee", State: "offline", Bad: true}}},
	}}
	svc.Dashboard.Nodes = func() dashboard.Nodes { return all }
	svc.Dashboard.Cluster = func() string { return "All shards are led." }
	for _, page := range []string{"/dashboard/cluster", "/dashboard/cluster/figures"} {
		text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\"`, `"`).Replace(b.see(page))
		for _, want := range []string{"3 of 3 nodes</strong>", "ant", "this node", "0.003 s", "1.2.3", "40.0 GiB of 100 GiB free<", "bee", "full</span> no space left", "-2.000 s", "All shards are led.",
			"1\u202f234 messages, 2.0 MiB per copy", "have 41.0 GiB of 300 GiB free", `<span class="mono">ant</span> <span class="state bad">behind</span> 17 behind`, `<span class="state bad">no leader</span>`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q: %s", page, want, text)
			}
		}
	}

	all = dashboard.Nodes{Connected: 1, Expected: 3, List: []dashboard.Node{
		all.List[0], {Name: "bee", State: dashboard.NodeMissing, Version: "1.2.3", Ahead: time.Second, Free: 1 << 30, Size: 100 << 30, Silent: 2 * time.Minute},
	}}
	text := b.see("/dashboard/cluster")
	for _, want := range []string{`<strong class="state bad">1 of 3 nodes</strong>`, `<span class="state bad">missing</span>`, "2 minutes ago", "when last heard", "One more node should be connected, but has been silent since this node started."} {
		if !strings.Contains(text, want) {
			t.Errorf("with missing nodes the page lacks %q: %s", want, text)
		}
	}
	if strings.Contains(text, "1.000 s") {
		t.Error("the page shows the clock of a missing node")
	}
	if text := b.see("/dashboard"); !strings.Contains(text, `state bad">1 of 3 nodes</strong></a> are connected. All shards are led.`) {
		t.Errorf("the overview does not show that nodes are missing: %s", text)
	}
}
