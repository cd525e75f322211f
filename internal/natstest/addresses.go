package natstest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Addresses returns addresses on which servers can listen. The operating system takes the ports of
// outgoing connections from a range that begins above these, so other tests that run at the same
// time do not take them before the servers listen.
func Addresses(t testing.TB, n int) (all []string) {
	t.Helper()
	for tries := 0; len(all) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close() // at the end, so that the addresses differ
			all = append(all, l.Addr().String())
		} else if tries > 100 {
			t.Fatal(err)
		}
	}
	return all
}
