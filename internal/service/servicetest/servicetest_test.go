package servicetest_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/access"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, url, key string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	// This test does not check the service's certificate authority, so it accepts every
	// certificate.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestStart(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{LogLevel: slog.LevelDebug})
	id := string(s.NewStream(hub.Spec{Name: "a"}))
	for key, want := range map[string]int{s.Key: 200, s.NewKey(access.Read): 200, s.NewKey(access.Publish): 403} {
		if status, body := get(t, s.HTTP+"/v1/streams/"+id, key); status != want {
			t.Errorf("status %d, want %d: %s", status, want, body)
		}
	}
	if s.HTTPS != "" || s.Metrics != "" {
		t.Errorf("HTTPS at %q and metrics at %q, want both off", s.HTTPS, s.Metrics)
	}
	if log := s.Log.String(); !strings.Contains(log, "msg=request") {
		t.Errorf("the log has no requests:\n%s", log)
	}
}

func TestArgs(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{
		"--https", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--base-url", "https://weir.example", "--demo",
	}})
	if got := s.URL(); got != "https://weir.example" {
		t.Errorf("links start with %s", got)
	}
	for _, url := range []string{s.HTTP + "/v1/health", s.HTTPS + "/v1/health", s.Metrics + "/readyz"} {
		if status, body := get(t, url, ""); status != 200 {
			t.Errorf("%s: status %d: %s", url, status, body)
		}
	}
	if status, body := get(t, s.HTTP+"/v1/streams/"+string(access.DemoStream), access.DemoKey); status != 200 {
		t.Errorf("demo: status %d: %s", status, body)
	}
}

func TestRestart(t *testing.T) {
	for name, o := range map[string]servicetest.Options{
		"on a directory": {Journal: true, Data: t.TempDir()},
		"on an engine":   {Engine: memory.New(), KeepEngine: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := servicetest.Start(t, o)
			project, key, id := s.Project, s.Key, string(s.NewStream(hub.Spec{Name: "a"}))
			s.Stop()
			s = servicetest.Start(t, o)
			if status, body := get(t, s.HTTP+"/v1/streams/"+id, key); status != 200 || s.Project != project {
				t.Errorf("after a restart: project %s instead of %s, status %d: %s", s.Project, project, status, body)
			}
		})
	}
}
