package contract

import (
	"flag"
	"net/http"
	"testing"
	"time"
)

var (
	slow = flag.Bool("contract.slow", false, "also run what takes longer than a minute")

	deployment = flag.String("contract.url", "", "address of a deployment to check (TestDeployment)")
	live       = flag.String("contract.live", "", "its live key")
	otherLive  = flag.String("contract.other", "", "its live key of another project")
	test       = flag.String("contract.test", "", "its test key of the live key's project")
	data       = flag.String("contract.data", "", "its data directory, where it runs on this machine: to make and revoke keys")
	h2c        = flag.Bool("contract.h2c", false, "speak HTTP/2 in clear text to it")
	demo       = flag.Bool("contract.demo", true, "it has the demo")
	grace      = flag.Duration("contract.gap-grace", 2*time.Second, "its --gap-grace")
)

// The suite, against the real server, over both protocols of a clear text listener. Each has a server of its own: the
// demo's window is used up in the end.
func TestContract(t *testing.T) {
	for name, client := range map[string]func() *http.Client{"HTTP1": HTTP1, "H2C": H2C} {
		t.Run(name, func(t *testing.T) {
			target := serve(t, t.TempDir(), "--gap-grace", "2s", "--rate-anonymous", "0").target()
			target.Client = client
			target.Slow = *slow
			Run(t, target)
		})
	}
}

// What happens at the limits, with limits that are soon reached.
func TestLimits(t *testing.T) {
	for name, client := range map[string]func() *http.Client{"HTTP1": HTTP1, "H2C": H2C} {
		t.Run(name, func(t *testing.T) {
			target := serve(t, t.TempDir(), "--rate-test", "30", "--rate-anonymous", "40", "--streams-per-project", "5",
				"--max-subscribers", "4", "--heartbeat", "150ms", "--demo=false").target()
			target.Client = client
			target.Demo = false
			target.Limits = Limits{Test: 30, Anonymous: 40, StreamsPerProject: 5, Subscribers: 4, Heartbeat: 150 * time.Millisecond}
			RunLimits(t, target)
		})
	}
}

// TestDeployment checks a server that runs somewhere; docs/conformance.md says how.
func TestDeployment(t *testing.T) {
	if *deployment == "" {
		t.Skip("no -contract.url")
	}
	target := Target{BaseURL: *deployment, Live: *live, OtherLive: *otherLive, Test: *test, Demo: *demo, GapGrace: *grace, Slow: *slow}
	if *h2c {
		target.Client = H2C
	}
	if *data != "" {
		target.NewKey = (&server{data: *data}).newKey
	}
	Run(t, target)
}
