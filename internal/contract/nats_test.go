package contract

import "testing"

// The suite on the distributed engine, with one NATS server inside the process. TestContractCluster does the same with three.
func TestContractNATS(t *testing.T) {
	if !*slow {
		t.Skip("takes a while: -contract.slow")
	}
	target := serve(t, t.TempDir(), "--gap-grace", "2s", "--rate-anonymous", "0", "--engine", "nats", "--cluster-listen", "127.0.0.1:0").over(t, Transports[0])
	target.Slow, target.Light = *slow, true
	Run(t, target)
}
