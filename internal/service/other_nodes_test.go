package service

import (
	"testing"

	"weir/internal/settings"
)

// The commands in docs/cluster.md give every node the same list, with the node's own address in it.
// The dashboard must not count this node twice and then warn that a node is missing.
func TestListOfPeersMayIncludeThisNode(t *testing.T) {
	for _, c := range []struct {
		peers []string
		want  int
	}{
		{nil, 0},
		{[]string{"a:1"}, 0},
		{[]string{"b:1", "c:1"}, 2},
		{[]string{"a:1", "b:1", "c:1"}, 2},
	} {
		if n := otherNodes(&settings.Engine{Listen: "a:1", Peers: c.peers}); n != c.want {
			t.Errorf("peers %v of node a:1: %d other nodes, want %d", c.peers, n, c.want)
		}
	}
}
