package copies

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// spreadOver returns streams with three copies each on the first servers of a list.
func spreadOver(servers string, n int) (all []StreamStanding) {
	names := strings.Split(servers, "")
	for i := range n {
		s := StreamStanding{Shard: i - 1, Leader: names[i%len(names)]}
		for k := range 3 {
			name := names[(i+k)%len(names)]
			s.Replicas = append(s.Replicas, ReplicaStanding{Server: name, Leads: name == s.Leader, Current: true})
		}
		all = append(all, s)
	}
	return all
}

// apply takes the steps of a plan. It fails if a step is impossible: no server may have two copies
// of a stream, and only a server with a copy can lead.
func apply(t *testing.T, streams []StreamStanding, steps []step) Standing {
	t.Helper()
	for _, s := range steps {
		on := &streams[s.stream]
		at := func(name string) int {
			return slices.IndexFunc(on.Replicas, func(r ReplicaStanding) bool { return r.Server == name })
		}
		switch {
		case s.from == "" && at(s.to) >= 0:
			on.Leader = s.to
		case s.from != "" && at(s.from) >= 0 && at(s.to) < 0:
			on.Replicas[at(s.from)].Server = s.to
			if on.Leader == s.from {
				on.Leader = on.Replicas[0].Server
			}
		default:
			t.Fatalf("step %+v is not possible with the copies %+v", s, on.Replicas)
		}
	}
	return Standing{Streams: streams}
}

// A plan spreads the copies evenly over all servers, and leaves a balanced cluster alone.
func TestPlanBalances(t *testing.T) {
	for _, servers := range []string{"abc", "abcd", "abcde", "abcdefg"} {
		for _, n := range []int{1, 2, 5, 17} {
			t.Run(fmt.Sprint(servers, " ", n), func(t *testing.T) {
				streams := spreadOver("abc", n)
				all := strings.Split(servers, "")
				var standing Standing
				for range 20 {
					standing = apply(t, streams, plan(streams, all, ""))
				}
				if steps := plan(streams, all, ""); len(steps) > 0 {
					t.Errorf("a balanced cluster is not left alone: %+v", steps)
				}
				_, copies := standing.Servers()
				most, least := 0, 3*n
				for _, s := range all {
					most, least = max(most, copies[s]), min(least, copies[s])
				}
				if most-least > 1 {
					t.Errorf("the servers have %v copies", copies)
				}
			})
		}
	}
}

// All copies leave a server, whatever the others have, and go to the servers with the fewest.
func TestPlanLeaves(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		servers := strings.Split("abcdef"[:4+rng.IntN(3)], "")
		streams := spreadOver(strings.Join(servers, ""), 1+rng.IntN(20))
		leaving := servers[rng.IntN(len(servers))]
		standing := apply(t, streams, plan(streams, servers, leaving))
		if leads, copies := standing.Servers(); copies[leaving] > 0 || leads[leaving] > 0 {
			t.Fatalf("seed %d: %s still has a copy of %v", seed, leaving, copies)
		}
	}
	// Without a server that could take a copy, there is no plan.
	if steps := plan(spreadOver("abc", 2), []string{"a", "b", "c"}, "a"); len(steps) > 0 {
		t.Errorf("a plan for too few servers: %+v", steps)
	}
}

// Leaders are shared out among the servers that have copies.
func TestPlanLeaders(t *testing.T) {
	streams := spreadOver("abc", 9)
	for i := range streams {
		streams[i].Leader = "a"
	}
	standing := apply(t, streams, plan(streams, []string{"a", "b", "c"}, ""))
	if leads, _ := standing.Servers(); !maps.Equal(leads, map[string]int{"a": 3, "b": 3, "c": 3}) {
		t.Errorf("the servers lead %v streams, want 3 each", leads)
	}
}
