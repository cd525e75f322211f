package trials

import (
	"flag"
	"testing"
	"time"

	"weir/internal/contract"
)

var slow = flag.Bool("trials.slow", false, "run tests and cases that take longer than a minute")

// The contract suite passes over each transport. Each transport has its own server, because one run
// of the suite uses up the rate window of the demo. The heavy cases run on a server of their own,
// which event loops serve and which is built without the race detector (see raced).
func TestContract(t *testing.T) {
	for _, by := range contract.Transports {
		t.Run(by.Name, func(t *testing.T) {
			t.Parallel()
			target := serve(t, t.TempDir(), "--gap-grace", "2s", "--rate-anonymous", "0").over(t, by)
			target.Slow, target.Light = *slow, true
			contract.Run(t, target)
		})
	}
	t.Run("heavy", func(t *testing.T) {
		t.Parallel()
		contract.RunHeavy(t, serve(t, t.TempDir()).over(t, contract.Transports[0]))
	})
}

// The limit cases of the contract suite pass on servers with small limits.
func TestLimits(t *testing.T) {
	for _, by := range contract.Transports {
		t.Run(by.Name, func(t *testing.T) {
			t.Parallel()
			target := serve(t, t.TempDir(), "--rate-test", "30", "--rate-anonymous", "40", "--streams-per-project", "5",
				"--max-subscribers", "4", "--heartbeat", "150ms", "--demo=false").over(t, by)
			target.Demo = false
			target.Limits = contract.Limits{Test: 30, Anonymous: 40, StreamsPerProject: 5, Subscribers: 4, Heartbeat: 150 * time.Millisecond}
			contract.RunLimits(t, target)
		})
	}
}
