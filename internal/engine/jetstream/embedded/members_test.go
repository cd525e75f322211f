package embedded

import "testing"

// The id that peerID computes is the one that NATS uses.
func TestPeerID(t *testing.T) {
	s, err := Start(Options{Dir: t.TempDir(), Name: "weir-abcdefghijkl"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if got, want := peerID("weir-abcdefghijkl"), s.s.Load().Node(); got != want {
		t.Errorf("the id is %q, want %q", got, want)
	}
}
