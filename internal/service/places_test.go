package service_test

import (
	"runtime/debug"
	"testing"

	"weir/internal/service/servicetest"
)

// The default of --max-subscribers depends on the memory of the machine. A number that the operator
// sets is used as it is.
func TestDefaultMaxSubscribers(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	for _, c := range []struct {
		args []string
		want int
	}{{nil, 2048}, {[]string{"--max-subscribers", "5000"}, 5000}} {
		s := servicetest.Start(t, servicetest.Options{Args: c.args})
		if got := s.API.Stats().Places; got != c.want {
			t.Errorf("%v: %d subscriptions, want %d", c.args, got, c.want)
		}
	}
}
