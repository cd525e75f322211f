package service

import (
	"fmt"
	"strings"

	"weir/internal/dashboard"
	"weir/internal/engine"
	"weir/internal/settings"
)

// troubles returns what the dashboard shows at the top of every page: the state of the store and of
// the cluster. It asks no other node, so that a page does not wait for a node that is gone.
func (s *store) troubles(status engine.Status, lease func() error) (all []dashboard.Trouble) {
	if t, ok := storeTroubles[status.State]; ok {
		if status.State == engine.Unreachable && s.stopped() != nil {
			t.State = "The NATS server of this node has stopped storing data."
			t.Remedy = "Check the disk of this node. The NATS server restarts by itself when the disk accepts writes. Clients can use another node."
		}
		if status.Reason != nil {
			t.Reason = sentence(status.Reason.Error()) + " " + t.Reason
		}
		all = append(all, t)
	}
	if lease != nil && lease() != nil {
		all = append(all, dashboard.Trouble{
			Kind: "cut off", Bad: true, State: "This node is cut off from the other nodes.",
			Reason: "It cannot know which keys are valid, so it refuses every request that needs a key, and has ended all subscriptions.",
			Remedy: "Check the network between the nodes. Clients can use another node.",
		})
	}
	if present, expected := s.presentNodes(); present < expected {
		t := dashboard.Trouble{
			Kind: "nodes", State: fmt.Sprintf("%d of %d nodes are connected.", present, expected),
			Reason: "The cluster accepts writes as long as more than half of its nodes are connected.",
			Remedy: "Start the missing node again, or check its network.",
		}
		if s.server == nil {
			t.Reason = "The other nodes serve all streams, because the NATS servers hold the data."
			t.Remedy += " A node that is gone for good is forgotten after an hour."
		}
		all = append(all, t)
	}
	if s.unsynced.Load() {
		all = append(all, dashboard.Trouble{
			Kind: "unsynced", State: "A power cut may lose acknowledged batches.",
			Reason: "The NATS servers may acknowledge before they sync (--nats-allow-unsynced).",
			Remedy: "Set sync_interval: always in the configuration of the NATS servers.",
		})
	}
	return all
}

// storeTroubles describes the states in which a store does not take all writes.
var storeTroubles = map[engine.State]dashboard.Trouble{
	engine.Full: {
		Kind: dashboard.TroubleFull, Bad: true, State: "The store is full.",
		Reason: "The server refuses publishes and new streams that do not fit into the space that is left (503). Reading, deleting and revoking work.",
		Remedy: "Free space, delete streams, or use a larger disk. The server accepts writes again by itself.",
	},
	engine.ReadOnly: {
		Kind: "read-only", Bad: true, State: "The store is read-only.",
		Reason: "The server refuses every change (503). Reading works.",
		Remedy: "Check the disk and the log of the server, then restart the server.",
	},
	engine.Unreachable: {
		Kind: "unreachable", Bad: true, State: "The servers that hold the store do not answer.",
		Reason: "This node refuses every change (503).",
		Remedy: "Check the network and the other nodes. Clients can use another node.",
	},
	engine.Skewed: {
		Kind: "clock", Bad: true, State: "The clock of this node is wrong.",
		Reason: "This node refuses to publish (503). Reading works.",
		Remedy: "Set the clock, for example with NTP. This node accepts writes again by itself. Clients can use another node.",
	},
}

// sentence returns an error text as a sentence.
func sentence(text string) string {
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// presentNodes returns how many nodes are connected, and how many there should be. The latter is
// the largest of three numbers: the nodes that were connected within the last hour, those that
// joined the cluster of NATS servers, and those that the settings name. Once a node was removed
// from the cluster, the settings do not count, because they may still name the removed node.
func (s *store) presentNodes() (present, expected int) {
	if s.nodes == nil {
		return 1, 1
	}
	present, expected = len(s.nodes.Names()), s.nodes.Known()
	if s.server != nil {
		if _, all, err := s.server.Members(); err == nil {
			expected = max(expected, all)
		}
	}
	if n := otherNodes(&s.settings.Engine); n > 0 && s.removed.Load() == nil {
		expected = max(expected, n+1)
	}
	return present, expected
}

// otherNodes returns the number of other nodes that the settings name. The list of peers may include
// the address of this node, so that it can be the same on all nodes.
func otherNodes(e *settings.Engine) (n int) {
	for _, p := range e.Peers {
		if p != e.Listen {
			n++
		}
	}
	return n
}
