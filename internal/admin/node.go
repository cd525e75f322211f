package admin

import "net/http"

// Nodes are the nodes of a cluster, as far as the node that answers knows them.
type Nodes struct {
	Connected int    `json:"connected"`
	Expected  int    `json:"expected"` // number of nodes that should be connected
	Nodes     []Node `json:"nodes"`
}

// Node is one node of a cluster.
type Node struct {
	Name       string  `json:"name"`
	This       bool    `json:"this"`             // the node that answers
	State      string  `json:"state"`            // state of its store, such as ready or full; missing if the node is not connected
	Reason     string  `json:"reason,omitempty"` // why the state is not ready
	Version    string  `json:"version"`
	ClockAhead float64 `json:"clock_ahead_seconds"` // compared with the median of all nodes
	Free       int64   `json:"free_bytes"`          // on the disk of its data directory
	Size       int64   `json:"size_bytes"`          // size of that disk
	Silent     float64 `json:"silent_seconds"`      // time since the node was last heard
}

// Nodes makes the handler serve GET /nodes.
func (h *Handler) Nodes(list func() (Nodes, error)) {
	h.mux.HandleFunc("GET /nodes", h.answer(func(*http.Request) (any, error) { return list() }))
}
