package metrics

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"weir/internal/api"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched returns metrics of a service with a value for every source.
func watched() *Metrics {
	m := New(Options{Version: "v1", Commit: "abc", Go: "go1", Ready: func() (string, bool) { return "ok", true }, Profiles: true, Reloaded: func() bool { return true }})
	m.Watch(Sources{
		API: func() api.Stats {
			s := api.Stats{
				Requests: []api.Requests{{Method: "GET", Route: "/v1/streams/{id}", Status: 200, Count: 7}, {Method: "other", Route: "other", Count: 1}},
				Limited:  map[string]uint64{"live": 1}, Ended: map[string]uint64{"client": 2}, Refused: map[string]uint64{"full": 1},
			}
			s.Publishes.Counts[3], s.Publishes.Counts[16], s.Publishes.Sum = 2, 1, 20_000_000_000
			return s
		},
		Pages: func() []api.Requests {
			return []api.Requests{{Method: "GET", Route: "/docs", Status: 304, Count: 3}}
		},
		Hub:         func() hub.Stats { return hub.Stats{Streams: 1} },
		Engine:      func() engine.Status { return engine.Status{State: engine.Ready} },
		Connections: func() Connections { return Connections{Open: 1, Limit: 2} },

		Journal: func() journal.Stats { return journal.Stats{Segments: 2} },
		Cluster: func() Cluster {
			return Cluster{Nodes: 3, Shards: 17, Led: 6, Copies: []Copy{{Shard: "0", Node: "a", Leads: true, Current: true}, {Shard: "0", Node: "b", Lag: 5}}}
		},
		Space: func() (int64, int64, error) { return 3, 5, nil },
	})
	return m
}

func ask(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

// Names and help texts follow the Prometheus conventions, and /metrics shows every row of the
// table.
func TestLint(t *testing.T) {
	m := watched()
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	_, text := ask(t, m.Handler(), "GET", "/metrics")
	for _, r := range table {
		if !strings.Contains(text, fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", r.name, r.help, r.name, r.kind)) {
			t.Errorf("/metrics does not show %s (%s)", r.name, r.kind)
		}
	}
}

func TestValues(t *testing.T) {
	m := watched()
	_, text := ask(t, m.Handler(), "GET", "/metrics")
	for _, line := range []string{
		`weir_build_info{commit="abc",go_version="go1",version="v1"} 1`,
		`weir_http_requests_total{code="200",method="GET",route="/v1/streams/{id}"} 7`,
		`weir_http_requests_total{code="304",method="GET",route="/docs"} 3`,
		`weir_http_requests_total{code="other",method="other",route="other"} 1`,
		`weir_http_rate_limited_total{window="live"} 1`,
		`weir_publish_duration_seconds_bucket{le="0.0005"} 0`,
		`weir_publish_duration_seconds_bucket{le="0.001"} 2`,
		`weir_publish_duration_seconds_bucket{le="10"} 2`,
		`weir_publish_duration_seconds_bucket{le="+Inf"} 3`,
		`weir_publish_duration_seconds_sum 20`,
		`weir_engine_state{state="ready"} 1`,
		`weir_engine_state{state="full"} 0`,
		`weir_journal_segments 2`,
		`weir_cluster_shards 17`,
		`weir_cluster_shard_leader{node="a",shard="0"} 1`,
		`weir_cluster_shard_replica_current{node="b",shard="0"} 0`,
		`weir_cluster_shard_replica_lag_messages{node="b",shard="0"} 5`,
		`weir_disk_free_bytes 3`,
		`weir_streams 1`,
		`weir_ready 1`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("/metrics has no line %s", line)
		}
	}
}

// While the service starts, only metrics that are already known are shown.
func TestStarting(t *testing.T) {
	m := New(Options{Ready: func() (string, bool) { return "starting", false }, Reloaded: func() bool { return true }})
	h := m.Handler()
	code, text := ask(t, h, "GET", "/metrics")
	if code != 200 || !strings.Contains(text, "\nweir_ready 0\n") || strings.Contains(text, "weir_streams") || !strings.Contains(text, "\ngo_goroutines ") {
		t.Errorf("/metrics while starting: status %d, want 200 and only the known metrics\n%s", code, text)
	}
	if code, text := ask(t, h, "GET", "/healthz"); code != 200 || text != "ok\n" {
		t.Errorf("/healthz: %d %s, want 200 ok", code, text)
	}
	if code, text := ask(t, h, "GET", "/readyz"); code != 503 || text != "starting\n" {
		t.Errorf("/readyz: %d %s, want 503 starting", code, text)
	}
}

// If the size of the disk is unknown and there is no journal, the metrics of disk and journal are
// left out. The others are shown.
func TestUnknownDiskSize(t *testing.T) {
	m := watched()
	s := *m.sources.Load()
	s.Space = func() (int64, int64, error) { return 0, 0, errors.ErrUnsupported }
	s.Journal = nil
	m.Watch(s)
	_, text := ask(t, m.Handler(), "GET", "/metrics")
	if strings.Contains(text, "weir_disk") || strings.Contains(text, "weir_journal") || !strings.Contains(text, "weir_streams 1") {
		t.Errorf("want weir_streams, and neither weir_disk nor weir_journal; /metrics shows:\n%s", text)
	}
}

func TestHandler(t *testing.T) {
	m := watched()
	h := m.Handler()
	for _, r := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/readyz", 200}, {"HEAD", "/healthz", 200}, {"POST", "/healthz", 405}, {"GET", "/", 404}, {"GET", "/v1/health", 404},
		{"GET", "/debug/pprof/", 200}, {"GET", "/debug/pprof/goroutine", 200}, {"GET", "/debug/pprof/cmdline", 404}, {"DELETE", "/metrics", 405},
	} {
		if code, _ := ask(t, h, r.method, r.path); code != r.status {
			t.Errorf("%s %s: status %d, want %d", r.method, r.path, code, r.status)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docs/operating.md has exactly one row for each metric, with its help text.
func TestMetricsInOperatingGuide(t *testing.T) {
	text := read(t, "docs/operating.md")
	var want []string
	for _, r := range table {
		labels := "none"
		if r.labels != nil {
			labels = "`" + strings.Join(r.labels, "`, `") + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s | %s |", r.name, r.kind, labels, r.help))
	}
	got := regexp.MustCompile("(?m)^\\| `weir_.*").FindAllString(text, -1)
	if !slices.Equal(got, want) {
		t.Errorf("the table of metrics in docs/operating.md must be:\n%s", strings.Join(want, "\n"))
	}
}

var (
	ours   = regexp.MustCompile(`\bweir_[a-z_]+`)
	suffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// The Grafana dashboard, the alerts and docs/operating.md name only existing metrics.
func TestOnlyKnownMetricsAreNamed(t *testing.T) {
	for _, file := range []string{"deploy/grafana/weir.json", "deploy/prometheus/alerts.yml", "docs/operating.md"} {
		names := ours.FindAllString(read(t, file), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range names {
			known := slices.ContainsFunc(table, func(r row) bool {
				return r.name == name || r.kind == histogram && r.name == suffix.ReplaceAllString(name, "")
			})
			if !known {
				t.Errorf("%s names %s, which is not a metric", file, name)
			}
		}
	}
}

// Every metric is on the Grafana dashboard or in an alert.
func TestEveryMetricIsUsed(t *testing.T) {
	shown := read(t, "deploy/grafana/weir.json") + read(t, "deploy/prometheus/alerts.yml")
	for _, r := range table {
		if !strings.Contains(shown, r.name) {
			t.Errorf("%s is neither on the dashboard nor in an alert", r.name)
		}
	}
}
