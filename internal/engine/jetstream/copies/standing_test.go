package copies

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A server that is cut off from the others still answers requests about a stream. The function Led
// must not trust this answer.
func TestLed(t *testing.T) {
	here, gone, unheard := &jetstream.PeerInfo{Active: time.Second}, &jetstream.PeerInfo{Active: time.Second, Offline: true}, &jetstream.PeerInfo{Active: lostAfter}
	behind := &jetstream.PeerInfo{Active: time.Second, Lag: 1000}
	for name, c := range map[string]struct {
		info *jetstream.ClusterInfo
		says string
	}{
		"single server":                      {nil, ""},
		"one replica":                        {&jetstream.ClusterInfo{Leader: "a"}, ""},
		"all servers are up":                 {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{here, here}}, ""},
		"one server is down":                 {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{here, gone}}, ""},
		"one server is down, and one lags":   {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{behind, gone}}, ""},
		"cut off a moment ago":               {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{unheard, unheard}}, "the leader hears 1 of 3 servers"},
		"cut off, with two of five servers":  {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{here, unheard, gone, unheard}}, "the leader hears 2 of 5 servers"},
		"two servers, and the other is down": {&jetstream.ClusterInfo{Leader: "a", Replicas: []*jetstream.PeerInfo{gone}}, "the leader hears 1 of 2 servers"},
		"cut off for a while":                {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{here, unheard, unheard}}, "no leader"},
		"an election in progress":            {&jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{here, here, here}}, "no leader"},
	} {
		said := ""
		if err := Led(c.info); err != nil {
			said = err.Error()
		}
		if said != c.says {
			t.Errorf("%s: %q, want %q", name, said, c.says)
		}
	}
}
