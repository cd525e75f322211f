package streams

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A stream with fewer replicas than wanted is refused.
func TestReplicas(t *testing.T) {
	if err := suits(jetstream.StreamConfig{Replicas: 3}, jetstream.StreamConfig{Replicas: 1}); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("fewer replicas than wanted: %v", err)
	}
}
