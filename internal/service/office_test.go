package service_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"weir/internal/service"
	"weir/internal/service/servicetest"
	"weir/internal/settings"
)

// getStatus requests a URL. It returns the status, and the target if the response is a redirect.
func getStatus(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// leadsToDashboard reports whether the manual at an address links to the dashboard.
func leadsToDashboard(t *testing.T, at string) bool {
	t.Helper()
	resp, err := http.Get(at + "/docs")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), `<a href="/dashboard`)
}

// dashboardAddress returns the address of the dashboard's own listener.
func dashboardAddress(s *servicetest.Service) string {
	for pairs := s.Addresses(); len(pairs) > 0; pairs = pairs[2:] {
		if pairs[0] == "dashboard" {
			return strings.TrimSuffix(pairs[1].(string), "/dashboard")
		}
	}
	return ""
}

// With --dashboard off, the service has no dashboard and creates no password. Everything else is
// served.
func TestDashboardOff(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--dashboard", "off"}})
	for path, want := range map[string]int{"/dashboard": 404, "/dashboard/sign-in": 404, "/dashboard/assets/style.css": 404, "/docs": 200, "/v1/health": 200} {
		if got, _ := getStatus(t, s.HTTP+path); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	if got, to := getStatus(t, s.HTTP+"/"); got != 302 || to != "/docs" {
		t.Errorf("/: status %d, redirect to %q; want 302 and /docs", got, to)
	}
	if leadsToDashboard(t, s.HTTP) {
		t.Error("the manual links to a dashboard that does not exist")
	}
	var out bytes.Buffer
	s.Welcome(&out)
	if strings.Contains(out.String(), "Dashboard") || strings.Contains(out.String(), "password") {
		t.Errorf("the first start mentions the dashboard: %s", &out)
	}
}

// If --dashboard names an address, the dashboard is served only at this address, and /v1 is not
// served there.
func TestDashboardAddress(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--dashboard", "127.0.0.1:0", "--base-url", "https://streams.example.com"}})
	at := dashboardAddress(s)
	if at == "" {
		t.Fatalf("the dashboard has no address in %v", s.Addresses())
	}
	for path, want := range map[string]int{"/dashboard": 401, "/dashboard/sign-in": 200, "/docs": 200, "/v1/health": 404, "/v1/streams": 404} {
		if got, _ := getStatus(t, at+path); got != want {
			t.Errorf("%s on the dashboard's address: status %d, want %d", path, got, want)
		}
	}
	for path, want := range map[string]int{"/dashboard": 404, "/dashboard/sign-in": 404, "/docs": 200, "/v1/health": 200} {
		if got, _ := getStatus(t, s.HTTP+path); got != want {
			t.Errorf("%s on the public address: status %d, want %d", path, got, want)
		}
	}
	if !leadsToDashboard(t, at) || leadsToDashboard(t, s.HTTP) {
		t.Error("the manual must link to the dashboard at the dashboard's address, and only there")
	}
	var out bytes.Buffer
	s.Welcome(&out)
	if !strings.Contains(out.String(), "Dashboard: "+at+"/dashboard\n") {
		t.Errorf("the first start does not print the address of the dashboard: %s", &out)
	}
	// The base URL is HTTPS, but the dashboard's own listener is not. A cookie restricted to HTTPS
	// would not work here, because browsers do not send it back over HTTP.
	password := strings.TrimSpace(out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n"):])
	resp, err := http.PostForm(at+"/dashboard/sign-in", map[string][]string{"name": {"admin"}, "password": {password}})
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	resp.Body.Close()
	if c := resp.Request.Response; c == nil || c.StatusCode != 303 || len(c.Cookies()) == 0 || c.Cookies()[0].Secure {
		t.Errorf("signing in: %+v, want 303 and a cookie that is not restricted to HTTPS", c)
	}
}

// If another process has the address, the error names the setting.
func TestDashboardAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	parsed, err := settings.Parse("--data", t.TempDir(), "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--dashboard", taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Start(t.Context(), service.Options{Settings: parsed, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "(--dashboard)") {
		t.Errorf("start: %v, want an error that names --dashboard", err)
	}
	for _, bad := range []string{"", "yes", "localhost"} {
		if _, err := settings.Parse("--dashboard", bad); err == nil || !strings.Contains(err.Error(), "--dashboard") {
			t.Errorf("--dashboard %q: %v, want an error that names the flag", bad, err)
		}
	}
}
