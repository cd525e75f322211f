//go:build real

package sim

import (
	"testing"

	"github.com/nats-io/nats.go"

	"weir/internal/engine/jetstream/embedded"
)

func init() {
	startReal = func(t *testing.T) func() (*nats.Conn, error) {
		s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return func() (*nats.Conn, error) { return s.Connect() }
	}
}
