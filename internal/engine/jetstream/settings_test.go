package jetstream

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/embedded"
)

// A stream with unsuitable settings is refused. The error names the stream and the setting.
func TestStreamSettings(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	open(t, s, "store").Close()
	js, err := jetstream.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "store-log-1")
	if err != nil {
		t.Fatal(err)
	}
	good := stream.CachedInfo().Config
	for says, change := range map[string]func(c *jetstream.StreamConfig){
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"discard":              func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"allow_direct":         func(c *jetstream.StreamConfig) { c.AllowDirect = false },
		"allow_atomic":         func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
	} {
		bad := good
		change(&bad)
		if _, err := js.UpdateStream(ctx, bad); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(t, s); err == nil || !strings.Contains(err.Error(), "store-log-1") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := js.UpdateStream(ctx, good); err != nil {
		t.Fatal(err)
	}
	if e, err := openStore(t, s); err != nil {
		t.Error(err)
	} else {
		e.Close()
	}
}

func openStore(t *testing.T, s *embedded.Server) (*Engine, error) {
	t.Helper()
	return Open(ctx, connect(t, s), Options{Name: "store", Shards: 2, Patience: time.Minute})
}
