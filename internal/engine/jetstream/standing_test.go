package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A server that is cut off from the others still answers requests about a stream. The function led
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
		if err := led(c.info); err != nil {
			said = err.Error()
		}
		if said != c.says {
			t.Errorf("%s: %q, want %q", name, said, c.says)
		}
	}
}

// Each node counts the logs that it opens, and its writes that failed because another node had
// written first.
func TestCounts(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	a, b := open(t, s, "store"), open(t, s, "store")
	defer a.Close()
	defer b.Close()
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	first := attach(t, a, doc.Created, &follower{})
	second, _ := openUnattended(t, b, doc.Created)
	if err := first.Append(ctx, text("one")); err != nil {
		t.Fatal(err)
	}
	// The second node does not follow the log, so its judge does not know the first entry when it
	// decides.
	if err := second.Append(ctx, text("two")); err != nil {
		t.Fatal(err)
	}
	if got := a.Counts(); got != (Counts{Opens: 1}) {
		t.Errorf("the first node counted %+v, want one opened log", got)
	}
	if got := b.Counts(); got.Opens != 1 || got.Conflicts == 0 {
		t.Errorf("the second node counted %+v, want one opened log and a conflict", got)
	}
}
