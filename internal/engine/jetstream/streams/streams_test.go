package streams

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/wire"
)

// A stream with fewer replicas than wanted is refused.
func TestReplicas(t *testing.T) {
	if err := suits(jetstream.StreamConfig{Replicas: 3}, jetstream.StreamConfig{Replicas: 1}); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("fewer replicas than wanted: %v", err)
	}
}

// returning is a server that is unreachable at first. Then it does not know all messages for a
// while.
type returning struct {
	wire.Servers
	reachable, whole time.Time
}

func (r *returning) Message(ctx context.Context, _ string, _ wire.Query) (wire.Stored, error) {
	switch now := time.Now(); {
	case now.Before(r.reachable):
		<-ctx.Done()
		return wire.Stored{}, ctx.Err()
	case now.Before(r.whole):
		return wire.Stored{}, &jetstream.APIError{Code: 404, ErrorCode: jetstream.JSErrCodeMessageNotFound}
	}
	return wire.Stored{}, nil
}

// A marker counts as missing only if servers say so for a while. The time in which no server answers
// does not count.
func TestMarkerAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reachable := time.Now().Add(2 * missingFor)
		c := &wire.Client{Servers: &returning{reachable: reachable, whole: reachable.Add(missingFor / 2)}, Patience: time.Minute, Life: t.Context()}
		if err := New(c, Options{Name: "weir"}).Intact(t.Context(), 0); err != nil {
			t.Errorf("a server that was unreachable, and then did not know the marker for %v: %v", missingFor/2, err)
		}
	})
}
