// Package metrics gives names to the counters of other packages and serves them to the operator in
// the Prometheus format. It also serves liveness and readiness checks, and profiles. The other
// packages count by themselves and do not depend on this package. Nothing is collected in the
// background: the counters are read when a scrape arrives.
package metrics

import (
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/internal/api"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/meter"
)

// Sources are functions that return the current numbers. Every scrape calls them, and several
// scrapes may run at the same time, so they must be safe for concurrent use.
type Sources struct {
	API    func() api.Stats
	Pages  func() []api.Requests // requests outside the API: for the dashboard, the manual and the JavaScript client
	Hub    func() hub.Stats
	Engine func() engine.Status

	Connections func() Connections // nil if connections are not counted

	Journal func() journal.Stats                 // nil if the store is not a journal
	Cluster func() Cluster                       // nil without a cluster
	Space   func() (free, size int64, err error) // free space and size of the disk; nil if the service uses no disk
}

// Connections are the connections of clients, over every protocol.
type Connections struct {
	Open, Limit       int
	Refused, Replaced uint64
}

// Cluster is the state of a store that several nodes share, as seen by this node.
type Cluster struct {
	Nodes    int    // reachable nodes, this one included
	Shards   int    // shards of the store
	Led      int    // shards that this node leads
	Headless int    // shards without a leader
	Behind   int    // shard replicas that are missing or out of date
	Lag      uint64 // messages missing on the replica that is furthest behind
	Copies   []Copy // copies of the shards, as far as known
	Unsynced bool   // servers may acknowledge data that a power cut can lose
	// ClockAhead is how far the clock of this node is ahead of the median of all nodes.
	ClockAhead time.Duration
	// Opens is the number of logs that this node opened without having their state in memory.
	// Conflicts is the number of its writes that it decided again, because another node had written
	// first. Resends is the number of its writes that it sent again, because no server had
	// answered.
	Opens, Conflicts, Resends uint64
}

// Copy is one copy of a shard, on the NATS server of a node.
type Copy struct {
	Shard   string // its number, or "documents"
	Node    string
	Leads   bool
	Current bool   // connected and up to date
	Lag     uint64 // messages that the copy lacks
}

// Options are the values that are known before the service is open.
type Options struct {
	Version, Commit, Go string

	// Ready reports whether the service accepts reads and writes. If it does not, status is the
	// reason (D32).
	Ready func() (status string, ok bool)

	// Profiles adds /debug/pprof to Handler.
	Profiles bool

	// Reloaded reports whether the last attempt to reload the configuration succeeded.
	Reloaded func() bool
}

// Metrics is a Prometheus collector, and provides the HTTP handler of the operator's listener
// (--metrics). It is safe for concurrent use.
type Metrics struct {
	opts     Options
	sources  atomic.Pointer[Sources]
	registry *prometheus.Registry
}

// New returns metrics of the process alone. The metrics of the service appear once Watch is called.
func New(o Options) *Metrics {
	m := &Metrics{opts: o, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch sets the sources of a running service. Call it once the service is open.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// Handler serves /metrics, /healthz, /readyz and, if Options.Profiles is set, /debug/pprof.
// /debug/pprof/cmdline is left out, because the command line may contain keys.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if status, ok := m.opts.Ready(); !ok {
			say(w, http.StatusServiceUnavailable, status)
			return
		}
		say(w, http.StatusOK, "ok")
	})
	if !m.opts.Profiles {
		return mux
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	return mux
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write([]byte(text + "\n"))
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for i := range table {
		to <- table[i].desc()
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	s := m.sample()
	for i := range table {
		row := &table[i]
		if !s.has(row.needs) {
			continue
		}
		put := func(v float64, labels ...string) {
			kind := prometheus.GaugeValue
			if row.kind == counter {
				kind = prometheus.CounterValue
			}
			to <- prometheus.MustNewConstMetric(row.desc(), kind, v, labels...)
		}
		switch {
		case row.value != nil:
			put(row.value(s))
		case row.values != nil:
			row.values(s, put)
		default:
			to <- row.histogram(row.distribution(s))
		}
	}
}

// sample holds the numbers of one scrape, so that all rows of the table show the same moment. If a
// member is nil, its numbers are unknown, and the rows that need them are left out.
type sample struct {
	opts       *Options
	ready      bool
	reloaded   bool
	api        *api.Stats
	pages      []api.Requests
	hub        *hub.Stats
	journal    *journal.Stats
	engine     *engine.Status
	conns      Connections
	cluster    *Cluster
	free, size int64 // of the disk; 0 if unknown
}

func (m *Metrics) sample() *sample {
	s := &sample{opts: &m.opts, reloaded: m.opts.Reloaded()}
	_, s.ready = m.opts.Ready()
	from := m.sources.Load()
	if from == nil {
		return s
	}
	a, h, e := from.API(), from.Hub(), from.Engine()
	s.api, s.pages, s.hub, s.engine = &a, from.Pages(), &h, &e
	if from.Connections != nil {
		s.conns = from.Connections()
	}
	if from.Journal != nil {
		j := from.Journal()
		s.journal = &j
	}
	if from.Cluster != nil {
		c := from.Cluster()
		s.cluster = &c
	}
	if from.Space != nil {
		if free, size, err := from.Space(); err == nil {
			s.free, s.size = free, size
		}
	}
	return s
}

// histogram converts a distribution to a Prometheus histogram in the unit of the row. Prometheus
// wants cumulative counts; a distribution counts each bucket separately.
func (r *row) histogram(d *meter.Distribution) prometheus.Metric {
	buckets := make(map[float64]uint64, len(r.bounds))
	n := uint64(0)
	for i, bound := range r.bounds {
		n += d.Counts[i]
		buckets[float64(bound)/r.unit] = n
	}
	return prometheus.MustNewConstHistogram(r.desc(), d.Count(), float64(d.Sum)/r.unit, buckets)
}
