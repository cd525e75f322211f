package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/engine"
	"weir/internal/meter"
)

type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// row is one metric: its name, its help text, and the source of its values.
type row struct {
	name   string
	kind   kind
	needs  needs
	labels []string
	help   string

	// Exactly one of these is set.
	value        func(*sample) float64
	values       func(s *sample, put func(v float64, labels ...string))
	distribution func(*sample) *meter.Distribution

	bounds *meter.Bounds // bucket bounds of the distribution
	unit   float64       // values of the distribution are divided by it, to get values in the unit of the metric
}

// needs says which numbers must be known for a metric to have a value. If they are unknown, a
// scrape leaves the metric out, because a 0 would be wrong.
type needs int

const (
	nothing    needs = iota
	service          // the service is open
	itsJournal       // the service is open and uses the journal
	itsCluster       // the service is open and uses an engine that nodes can share
	itsDisk          // the service is open and the size of its disk is known
)

func (s *sample) has(n needs) bool {
	switch n {
	case service:
		return s.api != nil
	case itsJournal:
		return s.journal != nil
	case itsCluster:
		return s.cluster != nil
	case itsDisk:
		return s.size > 0
	}
	return true
}

func (r *row) desc() *prometheus.Desc { return prometheus.NewDesc(r.name, r.help, r.labels, nil) }

// seconds is the unit of a row that shows nanoseconds as seconds.
const seconds = 1e9

// table lists Weir's metrics. Labels have few values, which are all known in advance. A path, an id
// or a key is never a label: clients could create any number of time series with them, or leak a
// key into the metrics.
var table = []row{
	{name: "weir_build_info", kind: gauge, labels: []string{"version", "commit", "go_version"},
		help: "Build information. Always 1.",
		values: func(s *sample, put func(float64, ...string)) {
			put(1, s.opts.Version, s.opts.Commit, s.opts.Go)
		}},
	{name: "weir_ready", kind: gauge, help: "1 while the service accepts reads and writes; 0 while it is starting, stopping, read-only or cut off from its store.",
		value: func(s *sample) float64 { return truth(s.ready) }},
	{name: "weir_config_last_reload_successful", kind: gauge,
		help:  "0 if the last SIGHUP found a configuration or certificate that could not be used, otherwise 1.",
		value: func(s *sample) float64 { return truth(s.reloaded) }},

	{name: "weir_connections", kind: gauge, needs: service, help: "Open connections of clients, over every protocol.",
		value: func(s *sample) float64 { return float64(s.conns.Open) }},
	{name: "weir_connections_limit", kind: gauge, needs: service, help: "Limit of open connections, of which the last quarter is for addresses that have few.",
		value: func(s *sample) float64 { return float64(s.conns.Limit) }},
	{name: "weir_connections_refused_total", kind: counter, needs: service, help: "Connections refused because of the limit.",
		value: func(s *sample) float64 { return float64(s.conns.Refused) }},
	{name: "weir_connections_replaced_total", kind: counter, needs: service, help: "Idle connections closed to make room for others.",
		value: func(s *sample) float64 { return float64(s.conns.Replaced) }},

	{name: "weir_http_requests_total", kind: counter, needs: service, labels: []string{"method", "route", "code"},
		help: "Answered requests by method, route and status. A subscription counts when it ends. Requests outside the API have the route /, /dashboard, /docs, /openapi.json or /client.js. Unknown routes and methods count as other, and so does the status if the client disconnected before the response.",
		values: func(s *sample, put func(float64, ...string)) {
			for _, r := range slices.Concat(s.api.Requests, s.pages) {
				code := "other"
				if r.Status != 0 {
					code = strconv.Itoa(r.Status)
				}
				put(float64(r.Count), r.Method, r.Route, code)
			}
		}},
	{name: "weir_http_request_bytes_total", kind: counter, needs: service, help: "Bytes of request bodies read.",
		value: func(s *sample) float64 { return float64(s.api.Received) }},
	{name: "weir_http_response_bytes_total", kind: counter, needs: service, help: "Bytes of response bodies sent, subscriptions excluded.",
		value: func(s *sample) float64 { return float64(s.api.Sent) }},
	{name: "weir_http_rate_limited_total", kind: counter, needs: service, labels: []string{"window"},
		help:   "Requests refused with 429, by rate window: live and test (per key), demo (per address that reads the demo), anonymous (per address without a valid key).",
		values: byName(func(s *sample) map[string]uint64 { return s.api.Limited })},
	{name: "weir_http_panics_total", kind: counter, needs: service, help: "Requests in which the server panicked. Each is a bug; the log has the stack.",
		value: func(s *sample) float64 { return float64(s.api.Panics) }},

	{name: "weir_payload_memory_bytes", kind: gauge, needs: service, labels: []string{"of"},
		help: "Memory of large payloads in flight: bodies that arrive (bodies), and batches on their way to readers (batches).",
		values: func(s *sample, put func(float64, ...string)) {
			put(float64(s.api.Bodies.Held), "bodies")
			put(float64(s.api.Batches.Held), "batches")
		}},
	{name: "weir_payload_memory_limit_bytes", kind: gauge, needs: service, labels: []string{"of"},
		help: "Limit of weir_payload_memory_bytes, a part of which is reserved for small payloads and for keys that hold little.",
		values: func(s *sample, put func(float64, ...string)) {
			put(float64(s.api.Bodies.Total), "bodies")
			put(float64(s.api.Batches.Total), "batches")
		}},
	{name: "weir_payload_memory_waiting", kind: gauge, needs: service, labels: []string{"of"},
		help: "Requests and subscriptions that wait for memory of large payloads.",
		values: func(s *sample, put func(float64, ...string)) {
			put(float64(s.api.Bodies.Waiting), "bodies")
			put(float64(s.api.Batches.Waiting), "batches")
		}},
	{name: "weir_payload_memory_cut_total", kind: counter, needs: service, labels: []string{"of"},
		help: "Slow bodies refused and slow readers cut off because others waited for their memory.",
		values: func(s *sample, put func(float64, ...string)) {
			put(float64(s.api.Bodies.Cut), "bodies")
			put(float64(s.api.Batches.Cut), "batches")
		}},

	{name: "weir_publish_duration_seconds", kind: histogram, needs: service,
		help:         "Latency of acknowledged publishes, duplicates included, from the request header to the response. It includes receiving the body and syncing the disk.",
		distribution: func(s *sample) *meter.Distribution { return &s.api.Publishes }, bounds: &meter.Latencies, unit: seconds},
	{name: "weir_published_batches_total", kind: counter, needs: service, help: "Batches stored.",
		value: func(s *sample) float64 { return float64(s.hub.Published) }},
	{name: "weir_published_bytes_total", kind: counter, needs: service, help: "Payload bytes stored.",
		value: func(s *sample) float64 { return float64(s.hub.PublishedBytes) }},
	{name: "weir_gaps_closed_total", kind: counter, needs: service, help: "Number of times that missing sequence numbers of a stream were closed because no publisher sent them within the grace period.",
		value: func(s *sample) float64 { return float64(s.hub.GapsClosed) }},
	{name: "weir_evicted_batches_total", kind: counter, needs: service, help: "Batches evicted because of their age or the size of their stream.",
		value: func(s *sample) float64 { return float64(s.hub.Evicted) }},
	{name: "weir_evicted_bytes_total", kind: counter, needs: service, help: "Payload bytes evicted.",
		value: func(s *sample) float64 { return float64(s.hub.EvictedBytes) }},
	{name: "weir_streams", kind: gauge, needs: service, help: "Number of streams.",
		value: func(s *sample) float64 { return float64(s.hub.Streams) }},
	{name: "weir_streams_open", kind: gauge, needs: service, help: "Streams in use now or a moment ago.",
		value: func(s *sample) float64 { return float64(s.hub.Open) }},

	{name: "weir_subscribers", kind: gauge, needs: service, help: "Open subscriptions.",
		value: func(s *sample) float64 { return float64(s.api.Subscribers) }},
	{name: "weir_subscribers_limit", kind: gauge, needs: service, help: "Limit of open subscriptions. The last quarter is reserved for keys and projects with few of them.",
		value: func(s *sample) float64 { return float64(s.api.Places) }},
	{name: "weir_subscriptions_refused_total", kind: counter, needs: service, labels: []string{"reason"},
		help:   "Subscriptions refused because of a limit, by reason: full (the limit is reached), share (the key, project or address holds enough of them).",
		values: byName(func(s *sample) map[string]uint64 { return s.api.Refused })},
	{name: "weir_subscriptions_total", kind: counter, needs: service, help: "Subscriptions started.",
		value: func(s *sample) float64 { return float64(s.api.Subscriptions) }},
	{name: "weir_subscriptions_ended_total", kind: counter, needs: service, labels: []string{"reason"},
		help:   "Subscriptions ended, by reason: client (disconnected), slow (accepted no data within the write timeout, or too little while others waited for its memory), stream_deleted (or expired), stream_closed, key_revoked, stopping, failed (the store could not be read), reconnect (the server ended a live read under /ds, and the client reconnects), operator (ended on the dashboard).",
		values: byName(func(s *sample) map[string]uint64 { return s.api.Ended })},
	{name: "weir_delivered_batches_total", kind: counter, needs: service, help: "Batches sent to subscribers, counted once per subscriber.",
		value: func(s *sample) float64 { return float64(s.hub.Delivered) }},
	{name: "weir_delivered_bytes_total", kind: counter, needs: service, help: "Bytes of events sent to subscribers.",
		value: func(s *sample) float64 { return float64(s.hub.DeliveredBytes) }},
	{name: "weir_delivery_delay_seconds", kind: histogram, needs: service,
		help:         "Time from appending a recent batch to the log until it is written to a subscriber's connection, including the disk sync. Batches sent in one write are all counted with the delay of the oldest. Batches that a subscriber catches up on are not counted.",
		distribution: func(s *sample) *meter.Distribution { return &s.hub.Delays }, bounds: &meter.Latencies, unit: seconds},
	{name: "weir_slowest_subscriber_lag_batches", kind: gauge, needs: service, help: "Backlog of the slowest subscriber, in sequence numbers, including gaps.",
		value: func(s *sample) float64 { return float64(s.hub.SlowestLag) }},
	{name: "weir_subscriber_backlog_batches", kind: gauge, needs: service, help: "Total backlog of all subscribers, in sequence numbers, including gaps.",
		value: func(s *sample) float64 { return float64(s.hub.Backlog) }},
	{name: "weir_index_memory_bytes", kind: gauge, needs: service, help: "Memory for the index of all kept batches, and for the gaps and idempotency keys of streams in use.",
		value: func(s *sample) float64 { return float64(s.hub.IndexBytes) }},
	{name: "weir_index_memory_limit_bytes", kind: gauge, needs: service, help: "Limit of weir_index_memory_bytes. Beyond it, projects that use more than their share cannot publish.",
		value: func(s *sample) float64 { return float64(s.hub.IndexLimit) }},
	{name: "weir_tail_bytes", kind: gauge, needs: service, help: "Bytes of recent batches held in memory for subscribers.",
		value: func(s *sample) float64 { return float64(s.hub.TailBytes) }},

	{name: "weir_engine_state", kind: gauge, needs: service, labels: []string{"state"},
		help:   "1 for the current state of the store: ready, full (no space; accepts deletions only, recovers by itself), read_only (a write failed; needs a restart), unreachable (NATS servers do not answer; recovers by itself), skewed (the clock of this node is wrong; recovers by itself), closed.",
		values: engineState},
	{name: "weir_journal_sync_duration_seconds", kind: histogram, needs: itsJournal, help: "Time from handing a group of records to the writer until the group is synced and can be acknowledged.",
		distribution: func(s *sample) *meter.Distribution { return &s.journal.Syncs }, bounds: &meter.Latencies, unit: seconds},
	{name: "weir_journal_group_records", kind: histogram, needs: itsJournal, help: "Records made durable by one sync.",
		distribution: func(s *sample) *meter.Distribution { return &s.journal.Sizes }, bounds: &meter.Sizes, unit: 1},
	{name: "weir_journal_written_bytes_total", kind: counter, needs: itsJournal, help: "Bytes written to the journal, including copies made by reclaiming.",
		value: func(s *sample) float64 { return float64(s.journal.Bytes) }},
	{name: "weir_journal_segments", kind: gauge, needs: itsJournal, help: "Segment files, including preallocated ones.",
		value: func(s *sample) float64 { return float64(s.journal.Segments) }},
	{name: "weir_journal_segments_used", kind: gauge, needs: itsJournal, help: "Segment files that hold records.",
		value: func(s *sample) float64 { return float64(s.journal.Used) }},
	{name: "weir_journal_size_bytes", kind: gauge, needs: itsJournal, help: "Total size of all segment files.",
		value: func(s *sample) float64 { return float64(s.journal.Disk) }},
	{name: "weir_journal_compression_saved_bytes", kind: gauge, needs: itsJournal, help: "Bytes by which compression makes the segment files smaller.",
		value: func(s *sample) float64 { return float64(s.journal.Saved) }},
	{name: "weir_journal_live_bytes", kind: gauge, needs: itsJournal, help: "Bytes of records that are still needed; the rest is reclaimed over time.",
		value: func(s *sample) float64 { return float64(s.journal.Live) }},
	{name: "weir_journal_reclaim_copied_bytes_total", kind: counter, needs: itsJournal, help: "Bytes that reclaiming copied out of segments in order to free them.",
		value: func(s *sample) float64 { return float64(s.journal.Copied) }},
	{name: "weir_journal_reclaim_freed_segments_total", kind: counter, needs: itsJournal, help: "Segments freed by reclaiming.",
		value: func(s *sample) float64 { return float64(s.journal.Freed) }},
	{name: "weir_journal_scrub_bytes_total", kind: counter, needs: itsJournal, help: "Bytes of sealed segments that the scrub has read and checked.",
		value: func(s *sample) float64 { return float64(s.journal.Scrub.Read) }},
	{name: "weir_journal_scrub_progress_ratio", kind: gauge, needs: itsJournal, help: "Part of the current pass of the scrub that is done, from 0 to 1; 0 between passes.",
		value: func(s *sample) float64 {
			return float64(s.journal.Scrub.Done) / float64(max(s.journal.Scrub.Total, 1))
		}},
	{name: "weir_journal_scrub_completed_timestamp_seconds", kind: gauge, needs: itsJournal, help: "Unix time when the last pass of the scrub ended; 0 if none has ended since the start.",
		value: func(s *sample) float64 {
			if s.journal.Scrub.Finished.IsZero() {
				return 0
			}
			return float64(s.journal.Scrub.Finished.Unix())
		}},
	{name: "weir_journal_damaged_records", kind: gauge, needs: itsJournal, help: "Damaged records, found by the scrub, that are still needed. The log and the dashboard name their streams.",
		value: func(s *sample) (n float64) {
			for _, f := range s.journal.Scrub.Findings {
				n += float64(f.Records)
			}
			return n
		}},
	{name: "weir_cluster_nodes", kind: gauge, needs: itsCluster, help: "Reachable nodes that share the store, this one included.",
		value: func(s *sample) float64 { return float64(s.cluster.Nodes) }},
	{name: "weir_cluster_shards", kind: gauge, needs: itsCluster, help: "Shards of the store; each is a JetStream stream.",
		value: func(s *sample) float64 { return float64(s.cluster.Shards) }},
	{name: "weir_cluster_shards_led", kind: gauge, needs: itsCluster, help: "Shards led by the embedded NATS server.",
		value: func(s *sample) float64 { return float64(s.cluster.Led) }},
	{name: "weir_cluster_shards_leaderless", kind: gauge, needs: itsCluster, help: "Shards without a leader, as seen by this node. They accept no writes.",
		value: func(s *sample) float64 { return float64(s.cluster.Headless) }},
	{name: "weir_cluster_replicas_behind", kind: gauge, needs: itsCluster, help: "Shard replicas that are missing or out of date.",
		value: func(s *sample) float64 { return float64(s.cluster.Behind) }},
	{name: "weir_cluster_replication_lag_messages", kind: gauge, needs: itsCluster, help: "Messages missing on the shard replica that is furthest behind.",
		value: func(s *sample) float64 { return float64(s.cluster.Lag) }},
	{name: "weir_cluster_shard_leader", kind: gauge, needs: itsCluster, labels: []string{"shard", "node"},
		help:   "1 if the NATS server of the node leads the shard, for each copy of a shard.",
		values: copies(func(c *Copy) float64 { return truth(c.Leads) })},
	{name: "weir_cluster_shard_replica_current", kind: gauge, needs: itsCluster, labels: []string{"shard", "node"},
		help:   "1 if the copy of the shard on the node is connected and up to date.",
		values: copies(func(c *Copy) float64 { return truth(c.Current) })},
	{name: "weir_cluster_shard_replica_lag_messages", kind: gauge, needs: itsCluster, labels: []string{"shard", "node"},
		help:   "Messages missing on the copy of the shard on the node.",
		values: copies(func(c *Copy) float64 { return float64(c.Lag) })},
	{name: "weir_cluster_unsynced", kind: gauge, needs: itsCluster, help: "1 if the NATS servers may acknowledge data that a power cut can lose (--nats-allow-unsynced).",
		value: func(s *sample) float64 { return truth(s.cluster.Unsynced) }},
	{name: "weir_cluster_clock_ahead_seconds", kind: gauge, needs: itsCluster, help: "How far the clock of this node is ahead of the median of all nodes. More than 5 seconds in either direction: the node accepts no writes.",
		value: func(s *sample) float64 { return s.cluster.ClockAhead.Seconds() }},
	{name: "weir_cluster_log_opens_total", kind: counter, needs: itsCluster, help: "Streams that this node opened without their state in memory. To open such a stream, a node reads the headers of its batches.",
		value: func(s *sample) float64 { return float64(s.cluster.Opens) }},
	{name: "weir_cluster_write_conflicts_total", kind: counter, needs: itsCluster, help: "Writes of this node that were refused and evaluated again, because another node had written to the stream first.",
		value: func(s *sample) float64 { return float64(s.cluster.Conflicts) }},
	{name: "weir_cluster_write_resends_total", kind: counter, needs: itsCluster, help: "Writes of this node that were sent again, because no server had answered in time.",
		value: func(s *sample) float64 { return float64(s.cluster.Resends) }},
	{name: "weir_disk_free_bytes", kind: gauge, needs: itsDisk, help: "Free space on the file system of the data directory.",
		value: func(s *sample) float64 { return float64(s.free) }},
	{name: "weir_disk_size_bytes", kind: gauge, needs: itsDisk, help: "Size of the file system of the data directory.",
		value: func(s *sample) float64 { return float64(s.size) }},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// copies returns a function that puts one value for each copy of a shard.
func copies(of func(*Copy) float64) func(*sample, func(float64, ...string)) {
	return func(s *sample, put func(float64, ...string)) {
		for i := range s.cluster.Copies {
			c := &s.cluster.Copies[i]
			put(of(c), c.Shard, c.Node)
		}
	}
}

// byName returns a function that puts one value for each entry of a map, with the key of the entry
// as the label.
func byName(of func(*sample) map[string]uint64) func(*sample, func(float64, ...string)) {
	return func(s *sample, put func(float64, ...string)) {
		for name, n := range of(s) {
			put(float64(n), name)
		}
	}
}

var engineStates = map[engine.State]string{
	engine.Ready: "ready", engine.Full: "full", engine.ReadOnly: "read_only", engine.Closed: "closed", engine.Unreachable: "unreachable",
	engine.Skewed: "skewed",
}

// StateName returns the name of a store's state, as in the label of weir_engine_state.
func StateName(s engine.State) string { return engineStates[s] }

func engineState(s *sample, put func(float64, ...string)) {
	for state, name := range engineStates {
		put(truth(s.engine.State == state), name)
	}
}
