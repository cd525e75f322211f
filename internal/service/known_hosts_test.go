package service_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"weir/internal/service/servicetest"
)

// status requests a URL with the given Host field, and returns the status.
func status(t *testing.T, url, host string) int {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// If another site makes its name resolve to the operator's address (DNS rebinding), its pages
// cannot read the responses.
func TestKnownHosts(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--metrics", "localhost:0", "--base-url", "https://Streams.example.com:8443/x"}})
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "10.1.2.3", "localhost:9090", "LOCALHOST.", "a.localhost:80", "streams.example.com", "streams.example.com:9090", machine} {
		if got := status(t, s.Metrics+"/metrics", host); got != 200 {
			t.Errorf("%s: status %d, want 200", host, got)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/"} {
		for _, host := range []string{"evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost", "example.com"} {
			if got := status(t, s.Metrics+path, host); got != 421 {
				t.Errorf("%s%s: status %d, want 421", host, path, got)
			}
		}
	}
}

// The server serves profiles only if the operator turns them on.
func TestProfiles(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	for args, want := range map[string]int{"": 404, "--pprof": 200} {
		s := servicetest.Start(t, servicetest.Options{Args: append([]string{"--metrics", "127.0.0.1:0"}, strings.Fields(args)...)})
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/symbol"} {
			if got := status(t, s.Metrics+path, ""); got != want {
				t.Errorf("%s with %q: status %d, want %d", path, args, got, want)
			}
		}
		if got := status(t, s.Metrics+"/debug/pprof/cmdline", ""); got != 404 {
			t.Errorf("cmdline with %q: status %d, want 404", args, got)
		}
	}
}
