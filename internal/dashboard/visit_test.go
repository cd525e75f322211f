package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"weir/internal/dashboard"
)

// HEAD returns the header fields of a page. It does not use up a key or a message that is shown
// only once, and it does not subscribe.
func TestHead(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	_, _, header := b.post("/dashboard/keys", "project", string(svc.Project), "kind", "live", "permission", "read")
	page := header.Get("Location")
	head := func(path string) http.Header {
		t.Helper()
		status, text, header := b.do("HEAD", path, "", "")
		if status != http.StatusOK || text != "" {
			t.Errorf("HEAD %s: status %d, want 200 and no body", path, status)
		}
		return header
	}
	head(page)
	if !strings.Contains(b.see(page), "It is not shown again") {
		t.Error("HEAD used up the key")
	}
	_, _, header = b.post("/dashboard/keys/"+svc.keyID+"/rotate", "name", "next")
	head(header.Get("Location"))
	if !strings.Contains(b.see(header.Get("Location")), "It is not shown again") {
		t.Error("HEAD used up the key of a rotation")
	}
	b.post("/dashboard/projects", "name", "said")
	head("/dashboard/projects")
	if !strings.Contains(b.see("/dashboard/projects"), "Project said created.") {
		t.Error("HEAD used up the message")
	}
}

// If the base URL is HTTPS, the cookie is restricted to HTTPS, and the dashboard trusts requests
// from this origin. Both hold whatever header fields the proxy in front of the server adds.
func TestBehindProxy(t *testing.T) {
	svc := startService(t, "--base-url", "https://Weir.example:443/")
	in := url.Values{"name": {dashboard.Account}, "password": {password}, "next": {"/dashboard/keys"}}
	ask := func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://10.0.0.7:8080"+path, strings.NewReader(body))
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		svc.Dashboard.ServeHTTP(w, r)
		return w
	}
	w := ask("POST", "/dashboard/sign-in", in.Encode(), "Origin", "https://weir.example")
	cookie := w.Header().Get("Set-Cookie")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(cookie, dashboard.SecureCookieName+"=") || !strings.Contains(cookie, "Secure") {
		t.Fatalf("sign-in: status %d, cookie %s", w.Code, cookie)
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	if w := ask("GET", "/dashboard/keys", "", "Cookie", cookie); w.Code != http.StatusOK {
		t.Errorf("page with the cookie: status %d, want 200", w.Code)
	}
	if w := ask("POST", "/dashboard/sign-in", in.Encode(), "Origin", "https://other.example"); w.Code != http.StatusForbidden {
		t.Errorf("sign-in from another origin: status %d, want 403", w.Code)
	}
	there := `href="https://Weir.example:443/dashboard"`
	if w := ask("GET", "/dashboard/sign-in", ""); !strings.Contains(w.Body.String(), there) {
		t.Error("the sign-in page over plain HTTP does not link to the HTTPS URL")
	}
	if w := ask("GET", "/dashboard/sign-in", "", "X-Forwarded-Proto", "HTTPS"); strings.Contains(w.Body.String(), there) {
		t.Error("the sign-in page over HTTPS links to another URL")
	}

	// Without a base URL, the proxy's X-Forwarded-Proto decides whether the cookie is restricted.
	// Its value may be in upper or lower case.
	svc.restart("--base-url", "")
	for proto, want := range map[string]string{"HTTPS": dashboard.SecureCookieName, "https": dashboard.SecureCookieName, "Https, http": dashboard.SecureCookieName, "http": dashboard.CookieName, "": dashboard.CookieName} {
		w := ask("POST", "/dashboard/sign-in", in.Encode(), "X-Forwarded-Proto", proto)
		if c := w.Header().Get("Set-Cookie"); !strings.HasPrefix(c, want+"=") {
			t.Errorf("X-Forwarded-Proto %q: cookie %s, want %s", proto, c, want)
		}
	}
}
