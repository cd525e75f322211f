package trials

import (
	"testing"

	"weir/internal/contract"
	"weir/internal/natstest"
)

// The contract suite passes on the JetStream engine, with one embedded NATS server and with an
// external one. TestContractCluster runs the suite on three nodes.
func TestContractNATS(t *testing.T) {
	for name, flags := range map[string]func(t *testing.T) []string{
		"embedded": func(*testing.T) []string { return []string{"--cluster-listen", "127.0.0.1:0"} },
		"external": externalNATS,
	} {
		t.Run(name, func(t *testing.T) {
			if !*slow {
				t.Skip("takes long; -trials.slow runs it")
			}
			t.Parallel()
			all := append([]string{"--gap-grace", "2s", "--rate-anonymous", "0", "--engine", "nats"}, flags(t)...)
			target := serve(t, t.TempDir(), all...).over(t, contract.Transports[0])
			target.Slow, target.Light = *slow, true
			contract.Run(t, target)
		})
	}
}

// externalNATS starts a NATS server and returns the flags that use it.
func externalNATS(t *testing.T) []string {
	s := natstest.Start(t, true)
	return []string{"--nats-url", s.URL, "--nats-replicas", "1", "--nats-creds", s.Creds, "--nats-system-creds", s.SystemCreds}
}
