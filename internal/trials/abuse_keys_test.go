package trials

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"weir/internal/contract"
)

// from creates a client that connects from another loopback address. It skips the test if this
// machine does not have the address.
func from(t *testing.T, address string) *http.Client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	if l, err := net.Listen("tcp", net.JoinHostPort(address, "0")); err != nil {
		t.Skipf("this machine has no address %s", address)
	} else {
		l.Close()
	}
	c := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 8}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// guess sends a request with a random key and returns the status.
func (s *server) guess(t *testing.T, c *http.Client, forwarded string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/streams", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", fmt.Sprintf("Bearer svc_live_%016x%016x", rand.Uint64(), rand.Uint64()))
	if forwarded != "" {
		req.Header.Set("X-Forwarded-For", forwarded)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	contract.ReadAll(resp)
	return resp.StatusCode
}

// guesses tries n random keys and counts the responses by status.
func (s *server) guesses(t *testing.T, c *http.Client, n int, forwarded func(int) string) map[int]int {
	t.Helper()
	got := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < n; i += 4 {
				status := s.guess(t, c, forwarded(i))
				mu.Lock()
				got[status]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return got
}

// A client that guesses keys gets 429 for every further guess once it has used up the rate window
// of its address (D23). A forged X-Forwarded-For does not help it. Clients with a key are not
// affected, even at the same address. Behind a trusted proxy, each client has its own window.
func TestGuessedKeys(t *testing.T) {
	t.Parallel()
	const window, tries = 200, 600
	s := serve(t, t.TempDir(), "--demo=false", "--rate-anonymous", strconv.Itoa(window), "--trusted-proxies", "127.0.0.3")
	p := newBystanders(t, s) // these clients use the address 127.0.0.1
	check := func(who string, got map[int]int, allowed int) {
		t.Helper()
		// A new window may begin while the test runs, so up to twice as many guesses may get 401.
		if got[401] < allowed || got[401] > 2*allowed || got[401]+got[429] != tries {
			t.Errorf("%s: got the statuses %v (status:count), want %d times 401 and then 429", who, got, allowed)
		}
	}
	check("an address", s.guesses(t, from(t, "127.0.0.1"), tries, func(int) string { return "" }), window)
	liar := from(t, "127.0.0.2")
	check("an address that forges X-Forwarded-For", s.guesses(t, liar, tries, func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250) }), window)
	proxy := from(t, "127.0.0.3")
	check("a client behind a proxy", s.guesses(t, proxy, tries, func(int) string { return "192.0.2.1" }), window)
	check("a client that forges X-Forwarded-For behind a proxy", s.guesses(t, proxy, tries, func(i int) string { return fmt.Sprintf("10.0.%d.%d, 192.0.2.2", i/250, i%250) }), window)
	check("a client that uses many addresses of an IPv6 /64", s.guesses(t, proxy, tries, func(i int) string { return fmt.Sprintf("2001:db8::%x", i) }), window)
	if got := s.guess(t, proxy, "192.0.2.3"); got != http.StatusUnauthorized {
		t.Errorf("another client behind the proxy got %d, want 401", got)
	}
	p.progress(5)
}
