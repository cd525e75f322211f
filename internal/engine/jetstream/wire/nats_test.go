package wire

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/embedded"
)

// acknowledged recognises the usual acknowledgement without decoding JSON, and accepts no other
// answer.
func TestAcknowledged(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	servers, err := Connect(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := servers.Create(t.Context(), jetstream.StreamConfig{Name: "stream", Subjects: []string{"subject"}}); err != nil {
		t.Fatal(err)
	}
	answer, err := nc.Request("subject", nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if seq, ok := acknowledged(answer.Data); !ok || seq != 1 {
		t.Errorf("the server's answer was not recognised: %s", answer.Data)
	}
	for answer, want := range map[string]uint64{
		`{"stream":"weir-log-0","seq":7}`:                        7,
		`{"stream":"weir-log-0", "seq":7}`:                       7,
		`{"stream":"weir-log-0","seq":17,"batch":"x","count":3}`: 17,
		`{"stream":"weir-log-0","domain":"x","seq":7}`:           0,
		`{"stream":"weir-log-0","seq":7,"domain":"x"}`:           7,
		`{"stream":"weir-log-0";"seq":7}`:                        0,
		`{"stream":"weir-log-0", "seq":7`:                        0,
		`{"stream":"weir-log-0", "seq":}`:                        0,
		`{"stream":"weir-log-0", "seq":0}`:                       0,
		`{"stream":"weir-log-0", "seq":7.5}`:                     0,
		`{"stream":"weir-log-0", "seq":99999999999999999999}`:    0,
		`{"stream":"weir-log-0", "seq":7,"error":{"code":400}}`:  0,
		`{"error":{"code":400},"stream":"weir-log-0","seq":0}`:   0,
		``: 0,
	} {
		if got, ok := acknowledged([]byte(answer)); ok != (want > 0) || ok && got != want {
			t.Errorf("%s: recognised: %v, sequence %d; want %d (0: not recognised)", answer, ok, got, want)
		}
	}
}
