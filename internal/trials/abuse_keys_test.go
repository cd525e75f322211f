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

// from makes a client of another address of this machine.
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

// guess tries a key that does not exist.
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

// guesses tries keys, and counts the answers.
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

// Whoever guesses keys is told nothing any more after the window of its address (D23), whatever address it says that it
// forwards for, and whoever has a key goes on, also from the same address. Behind a proxy that is trusted, each client has
// a window.
func TestGuessedKeys(t *testing.T) {
	t.Parallel()
	const window, tries = 200, 600
	s := serve(t, t.TempDir(), "--demo=false", "--rate-anonymous", strconv.Itoa(window), "--trusted-proxies", "127.0.0.3")
	p := peaceful(t, s) // from 127.0.0.1
	check := func(who string, got map[int]int, let int) {
		t.Helper()
		// A minute may have ended in between, which begins another window.
		if got[401] < let || got[401] > 2*let || got[401]+got[429] != tries {
			t.Errorf("%s: %v, want %d times 401 and then 429", who, got, let)
		}
	}
	check("an address", s.guesses(t, from(t, "127.0.0.1"), tries, func(int) string { return "" }), window)
	liar := from(t, "127.0.0.2")
	check("one that claims to be others", s.guesses(t, liar, tries, func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250) }), window)
	proxy := from(t, "127.0.0.3")
	check("a client of a proxy", s.guesses(t, proxy, tries, func(int) string { return "192.0.2.1" }), window)
	check("a client of a proxy that claims to be others", s.guesses(t, proxy, tries, func(i int) string { return fmt.Sprintf("10.0.%d.%d, 192.0.2.2", i/250, i%250) }), window)
	check("a subscriber with a /64", s.guesses(t, proxy, tries, func(i int) string { return fmt.Sprintf("2001:db8::%x", i) }), window)
	if got := s.guess(t, proxy, "192.0.2.3"); got != http.StatusUnauthorized {
		t.Errorf("another client of the proxy got %d", got)
	}
	p.goOn(5)
}
