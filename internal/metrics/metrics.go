// Package metrics is what the counters of the rooms are called, and the operator's own address to see them: metrics in the
// format of Prometheus, whether the service is alive and ready, and profiles. Rooms count for themselves and know nothing
// of this; whatever is asked for is added up when it is asked for.
package metrics

import (
	"net/http"
	"net/http/pprof"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/internal/api"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/meter"
)

// Sources are where the numbers come from.
type Sources struct {
	API    func() api.Stats
	Pages  func() []api.Requests // for what is served beside the interface
	Hub    func() hub.Stats
	Engine func() engine.Status

	Journal func() journal.Stats                 // nil with another engine
	Cluster func() Cluster                       // nil where there is none
	Space   func() (free, size int64, err error) // of the disk; nil where there is none
}

// Cluster is how a store stands that several nodes share.
type Cluster struct {
	Nodes                         int // that can be heard, this one included
	Shards, Led, Headless, Behind int // of the store: those led by this node, without a leader, and copies that are not up to date
	Lag                           uint64
	Unsynced                      bool // servers may acknowledge what a power cut undoes
}

// Options are what is known from the start.
type Options struct {
	Version, Commit, Go string

	// Ready tells whether the service takes reads and writes, and otherwise why not (D32).
	Ready func() (status string, ok bool)

	// Reloaded tells whether the last attempt to read the configuration succeeded.
	Reloaded func() bool
}

// Metrics collects when it is asked to.
type Metrics struct {
	opts     Options
	sources  atomic.Pointer[Sources]
	registry *prometheus.Registry
}

// New makes metrics that know the process, and the rest from Watch on.
func New(o Options) *Metrics {
	m := &Metrics{opts: o, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch has the numbers of a running service collected.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// Handler serves /metrics, /healthz, /readyz and /debug/pprof. The command line is not shown: it may hold keys.
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

// sample is all numbers at one moment. What is not known is nil.
type sample struct {
	opts       *Options
	ready      bool
	reloaded   bool
	api        *api.Stats
	pages      []api.Requests
	hub        *hub.Stats
	journal    *journal.Stats
	engine     *engine.Status
	cluster    *Cluster
	free, size int64 // of the disk; 0: not known
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

// histogram writes a distribution in the unit of the row.
func (r *row) histogram(d *meter.Distribution) prometheus.Metric {
	buckets := make(map[float64]uint64, len(r.bounds))
	n := uint64(0)
	for i, bound := range r.bounds {
		n += d.Counts[i]
		buckets[float64(bound)/r.unit] = n
	}
	return prometheus.MustNewConstHistogram(r.desc(), d.Count(), float64(d.Sum)/r.unit, buckets)
}
