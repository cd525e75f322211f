package admin

import "net/http"

// Nodes are the nodes of a cluster, as far as the node that answers knows them.
type Nodes struct {
	Connected int    `json:"connected"`
	Expected  int    `json:"expected"` // number of nodes that should be connected
	Nodes     []Node `json:"nodes"`
	// Shards are the JetStream streams of the store. The first of them holds the documents: the
	// records of streams, projects and keys.
	Shards []Shard `json:"shards"`
}

// Shard is the state of one shard.
type Shard struct {
	Name     string    `json:"name"`            // DocumentsShard, or the number of the shard
	Leader   string    `json:"leader"`          // empty if the shard has no leader
	Fault    string    `json:"fault,omitempty"` // why the shard accepts no writes
	Messages uint64    `json:"messages"`
	Bytes    uint64    `json:"bytes"` // size of one copy
	Lag      uint64    `json:"lag"`   // messages missing on the copy that is furthest behind
	Replicas []Replica `json:"replicas"`
}

// DocumentsShard is the name of the shard that holds the records of streams, projects and keys.
const DocumentsShard = "documents"

// Replica is one copy of a shard.
type Replica struct {
	Node  string `json:"node"`
	State string `json:"state"` // ReplicaLeads, ReplicaCurrent, ReplicaBehind or ReplicaOffline
	Lag   uint64 `json:"lag"`   // messages that the copy lacks
}

// The states of a replica.
const (
	ReplicaLeads   = "leads"
	ReplicaCurrent = "current"
	ReplicaBehind  = "behind"
	ReplicaOffline = "offline"
)

// Node is one node of a cluster.
type Node struct {
	Name       string  `json:"name"`
	This       bool    `json:"this"`             // the node that answers
	State      string  `json:"state"`            // state of its store, such as "ready" or "full"; "missing" if the node is not connected
	Reason     string  `json:"reason,omitempty"` // why the state is not ready
	Version    string  `json:"version"`
	ClockAhead float64 `json:"clock_ahead_seconds"` // compared with the median of all nodes
	Free       int64   `json:"free_bytes"`          // on the disk of its data directory
	Size       int64   `json:"size_bytes"`          // size of that disk
	Silent     float64 `json:"silent_seconds"`      // time since the node was last heard
	Leads      int     `json:"leads"`               // shards that its NATS server leads; 0 if the NATS servers run elsewhere
	Copies     int     `json:"copies"`              // shards that have a copy on its NATS server
}

// Nodes makes the handler serve GET /nodes.
func (h *Handler) Nodes(list func() (Nodes, error)) {
	h.mux.HandleFunc("GET /nodes", h.answer(func(*http.Request) (any, error) { return list() }))
}
