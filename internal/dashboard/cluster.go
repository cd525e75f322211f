package dashboard

import (
	"fmt"
	"net/http"
	"time"

	"weir"
)

// Nodes are the nodes that share the store, as far as this node knows them.
type Nodes struct {
	Connected int
	Expected  int // number of nodes that should be connected
	List      []Node
	Shards    []Shard
}

// Shard is one of the JetStream streams that hold the store.
type Shard struct {
	Name     string
	Leader   string // empty if there is none
	Fault    string // why the shard accepts no writes; empty if it accepts writes
	Messages uint64
	Bytes    int64 // size of one copy
	Replicas []Replica
}

// Replica is one copy of a shard.
type Replica struct {
	Node  string
	State string
	Bad   bool // not connected or not up to date
	Lag   uint64
}

// Stored returns the size of all shards, counting one copy of each.
func (n Nodes) Stored() (bytes int64) {
	for _, s := range n.Shards {
		bytes += s.Bytes
	}
	return bytes
}

// Messages returns the number of messages in all shards.
func (n Nodes) Messages() (all uint64) {
	for _, s := range n.Shards {
		all += s.Messages
	}
	return all
}

// Disks returns the free bytes and the size of the disks of all connected nodes.
func (n Nodes) Disks() (sum Node) {
	for _, node := range n.List {
		if !node.Missing() {
			sum.Free, sum.Size = sum.Free+node.Free, sum.Size+node.Size
		}
	}
	return sum
}

// Complete reports whether all nodes are connected.
func (n Nodes) Complete() bool { return n.Connected >= n.Expected }

// Node is one of the nodes that share the store.
type Node struct {
	Name    string
	This    bool   // the node that serves the page
	State   string // state of its store, such as ready or full; NodeMissing if the node is not connected
	Reason  string // why the state is not ready; may be empty
	Version string // empty if unknown
	Ahead   time.Duration
	Free    int64 // free bytes on the disk of its data directory
	Size    int64 // size of that disk; 0 if unknown
	Silent  time.Duration
	Leads   int // shards that its NATS server leads
	Copies  int // shards that have a copy on its NATS server
}

// The states of a node that the page knows. Any other state is a fault of the node's store.
const (
	NodeReady   = "ready"
	NodeMissing = "missing"
)

// Bad reports whether the node cannot serve all requests.
func (n Node) Bad() bool { return n.State != NodeReady }

// Missing reports whether the node is not connected.
func (n Node) Missing() bool { return n.State == NodeMissing }

// Clock says by how much the clock of the node is ahead of the median of all nodes.
func (n Node) Clock() string {
	if n.Missing() {
		return "-"
	}
	return fmt.Sprintf("%+.3f s", n.Ahead.Seconds())
}

// Heard says when this node last received a message from the node n.
func (n Node) Heard() string {
	switch {
	case n.This:
		return "this node"
	case n.Silent < 2*time.Second: // nodes send a message twice per second
		return "now"
	}
	return roughly(n.Silent) + " ago"
}

// Used returns the bytes that are used on the disk of the node.
func (n Node) Used() int64 { return n.Size - n.Free }

// High returns the number of used bytes above which the meter of the disk is yellow (level 0) or red
// (level 1).
func (n Node) High(level int) int64 { return highOf(n.Size, level) }

// clusterView is the data of the page of the cluster.
type clusterView struct {
	Nodes
	Line    string // state of the shards, in words
	Unknown int    // nodes that should be connected, and that this node has not heard since it started
}

func (v *visit) lookAtCluster() (clusterView, error) {
	if v.Nodes == nil {
		return clusterView{}, weir.Errorf(weir.NotFound, "this server is not part of a cluster")
	}
	w := clusterView{Nodes: v.Nodes(), Line: v.Cluster()}
	w.Unknown = max(0, w.Expected-len(w.List))
	return w, nil
}

func (v *visit) cluster() error {
	w, err := v.lookAtCluster()
	if err != nil {
		return err
	}
	return v.page(http.StatusOK, "cluster", "Cluster", w)
}

// clusterParts are the templates of the page that clusterFigures renders again on each update.
var clusterParts = []string{"nodes"}

// clusterFigures returns the changing parts of the page as JSON.
func (v *visit) clusterFigures() error {
	w, err := v.lookAtCluster()
	if err != nil {
		return err
	}
	parts, err := fragments("cluster", w, clusterParts)
	if err == nil {
		err = addTrouble(parts, v.troubles())
	}
	if err != nil {
		return err
	}
	return v.json(map[string]any{"parts": parts})
}
