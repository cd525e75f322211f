package trials

import (
	"testing"

	"weir/internal/contract"
	"weir/internal/natstest"
)

// The suite on the distributed engine, with one NATS server inside the process, and with one that runs elsewhere.
// TestContractCluster does the same with three.
func TestContractNATS(t *testing.T) {
	for name, flags := range map[string]func(t *testing.T) []string{
		"inside":    func(*testing.T) []string { return []string{"--cluster-listen", "127.0.0.1:0"} },
		"elsewhere": natsElsewhere,
	} {
		t.Run(name, func(t *testing.T) {
			if !*slow {
				t.Skip("takes a while: -trials.slow")
			}
			t.Parallel()
			all := append([]string{"--gap-grace", "2s", "--rate-anonymous", "0", "--engine", "nats"}, flags(t)...)
			target := serve(t, t.TempDir(), all...).over(t, contract.Transports[0])
			target.Slow, target.Light = *slow, true
			contract.Run(t, target)
		})
	}
}

// natsElsewhere runs a NATS server, and returns the flags that use it.
func natsElsewhere(t *testing.T) []string {
	s := natstest.Start(t, true)
	return []string{"--nats-url", s.URL, "--nats-replicas", "1", "--nats-creds", s.Creds, "--nats-system-creds", s.SystemCreds}
}
