package dashboard_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/service/servicetest"
)

// visitor is a browser. All visitors come from the same address, as clients behind a proxy do.
type visitor struct {
	t      *testing.T
	client *http.Client
	url    string
}

func newVisitor(t *testing.T, s *servicetest.Service) *visitor {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &visitor{t, &http.Client{Jar: jar, Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, s.HTTP}
}

// post sends a form and returns the status.
func (v *visitor) post(path string, form url.Values, forwarded string) int {
	v.t.Helper()
	r, err := http.NewRequest("POST", v.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "text/html")
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	resp, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (v *visitor) signIn(password string) int {
	v.t.Helper()
	return v.post("/dashboard/sign-in", url.Values{"name": {"admin"}, "password": {password}}, "")
}

const rightPassword = "four random words here"

// guarded starts a service whose dashboard has the password rightPassword.
func guarded(t *testing.T, o servicetest.Options) *servicetest.Service {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(rightPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Args = append(o.Args, "--admin-password-file", file)
	return servicetest.Start(t, o)
}

// Wrong passwords from the address of an operator do not lock out a browser that has signed in
// before, even after a restart. They lock out all other browsers at this address, and the log
// reports the lock once.
func TestKnownBrowser(t *testing.T) {
	data := t.TempDir()
	s := guarded(t, servicetest.Options{Data: data, Journal: true})
	operator, stranger := newVisitor(t, s), newVisitor(t, s)
	if got := operator.signIn(rightPassword); got != http.StatusSeeOther {
		t.Fatalf("signing in: status %d, want 303", got)
	}
	for range 5 {
		if got := stranger.signIn("wrong"); got != http.StatusUnauthorized {
			t.Fatalf("a wrong password: status %d, want 401", got)
		}
	}
	for range 3 {
		if got := stranger.signIn(rightPassword); got != http.StatusTooManyRequests {
			t.Errorf("a stranger after five wrong passwords: status %d, want 429", got)
		}
	}
	if got := operator.signIn(rightPassword); got != http.StatusSeeOther {
		t.Errorf("a browser that has signed in before: status %d, want 303", got)
	}
	if got := stranger.signIn(rightPassword); got != http.StatusTooManyRequests {
		t.Errorf("a stranger after the operator signed in: status %d, want 429", got)
	}
	if n := strings.Count(s.Log.String(), "signing in is locked"); n != 1 {
		t.Errorf("%d lines about the lock, want 1: %s", n, s.Log)
	}
	s.Stop()

	s = guarded(t, servicetest.Options{Data: data, Journal: true})
	stranger, operator.url = newVisitor(t, s), s.HTTP
	for range 5 {
		stranger.signIn("wrong")
	}
	for range 5 { // the limit for a known browser is the same as for an address
		if got := operator.signIn("wrong"); got != http.StatusUnauthorized {
			t.Errorf("a known browser after the restart: status %d, want 401", got)
		}
	}
	if got := operator.signIn(rightPassword); got != http.StatusTooManyRequests {
		t.Errorf("a known browser after five wrong passwords: status %d, want 429", got)
	}
}

// The mark of a known browser, a signed cookie, gives access to no page and cannot be forged.
func TestKnownBrowserGrantsNothing(t *testing.T) {
	s := guarded(t, servicetest.Options{})
	operator := newVisitor(t, s)
	operator.signIn(rightPassword)
	at, _ := url.Parse(s.HTTP)
	var mark *http.Cookie
	for _, c := range operator.client.Jar.Cookies(at) {
		if c.Name == "weir_browser" {
			mark = c
		}
	}
	if mark == nil {
		t.Fatal("the browser got no mark")
	}
	thief := newVisitor(t, s)
	thief.client.Jar.SetCookies(at, []*http.Cookie{mark})
	resp, err := thief.client.Get(s.HTTP + "/dashboard/figures")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a page with the mark alone: status %d, want 401", resp.StatusCode)
	}
	stranger := newVisitor(t, s)
	for range 5 {
		stranger.signIn("wrong")
	}
	last := mark.Value[len(mark.Value)-1]
	for _, forged := range []string{"", ".", "x", mark.Value[:len(mark.Value)-1], mark.Value + "A", mark.Value[:len(mark.Value)-1] + string(last^1), "0" + mark.Value} {
		stranger.client.Jar.SetCookies(at, []*http.Cookie{{Name: "weir_browser", Value: forged}})
		if got := stranger.signIn(rightPassword); got != http.StatusTooManyRequests {
			t.Errorf("with the mark %q: status %d, want 429", forged, got)
		}
	}
}

// If --trusted-proxies does not name a proxy, all clients behind this proxy share one address. The
// log warns about this once.
func TestUnnamedProxy(t *testing.T) {
	for _, proxies := range []string{"", "127.0.0.1"} {
		var args []string
		if proxies != "" {
			args = []string{"--trusted-proxies", proxies}
		}
		s := guarded(t, servicetest.Options{Args: args})
		v := newVisitor(t, s)
		for range 3 {
			v.post("/dashboard/sign-in", url.Values{"name": {"admin"}, "password": {"wrong"}}, "203.0.113.7")
		}
		want := 1
		if proxies != "" {
			want = 0
		}
		if n := strings.Count(s.Log.String(), "--trusted-proxies"); n != want {
			t.Errorf("with proxies %q: %d warnings, want %d: %s", proxies, n, want, s.Log)
		}
	}
}
