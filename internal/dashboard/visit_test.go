package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// HEAD gives the header fields of a page and uses nothing up: not a key that is shown once, not what is said once; and it
// subscribes to nothing.
func TestHead(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	_, _, header := b.post("/dashboard/keys", "project", string(h.project.ID), "kind", "live", "permission", "read")
	page := header.Get("Location")
	head := func(path string) http.Header {
		t.Helper()
		status, text, header := b.do("HEAD", path, "", "")
		if status != http.StatusOK || text != "" {
			t.Errorf("HEAD %s gives %d", path, status)
		}
		return header
	}
	head(page)
	if !strings.Contains(b.see(page), "It is shown only now") {
		t.Error("the key was used up")
	}
	_, _, header = b.post("/dashboard/keys/"+h.keyID+"/rotate", "name", "next")
	head(header.Get("Location"))
	if !strings.Contains(b.see(header.Get("Location")), "It is shown only now") {
		t.Error("the key of a rotation was used up")
	}
	b.post("/dashboard/projects", "name", "said")
	head("/dashboard/projects")
	if !strings.Contains(b.see("/dashboard/projects"), "The project said was created.") {
		t.Error("what was to be said was used up")
	}
	if kind := head("/dashboard/streams/" + string(h.stream) + "/tail").Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("the tail is %s", kind)
	}
	if n := h.api.Stats().Subscriptions; n != 0 {
		t.Errorf("HEAD subscribed %d times", n)
	}
}

// With a base URL that is HTTPS, the cookie is for HTTPS alone and its origin is trusted, whatever the proxy before the server
// tells of them.
func TestBehindProxy(t *testing.T) {
	h := newHouse(t)
	h.d.Close(t.Context())
	h.base = "https://Weir.example:443/"
	h.open(t.Context())
	in := url.Values{"name": {Account}, "password": {password}, "next": {"/dashboard/keys"}}
	ask := func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://10.0.0.7:8080"+path, strings.NewReader(body))
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.d.ServeHTTP(w, r)
		return w
	}
	w := ask("POST", "/dashboard/sign-in", in.Encode(), "Origin", "https://weir.example")
	cookie := w.Header().Get("Set-Cookie")
	if w.Code != http.StatusSeeOther || !strings.HasPrefix(cookie, secureCookieName+"=") || !strings.Contains(cookie, "Secure") {
		t.Fatalf("signing in gives %d and %s", w.Code, cookie)
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	if w := ask("GET", "/dashboard/keys", "", "Cookie", cookie); w.Code != http.StatusOK {
		t.Errorf("a page gives %d", w.Code)
	}
	if w := ask("POST", "/dashboard/sign-in", in.Encode(), "Origin", "https://other.example"); w.Code != http.StatusForbidden {
		t.Errorf("another origin gives %d", w.Code)
	}
	there := `href="https://Weir.example:443/dashboard"`
	if w := ask("GET", "/dashboard/sign-in", ""); !strings.Contains(w.Body.String(), there) {
		t.Error("who comes in clear text is not told where to sign in")
	}
	if w := ask("GET", "/dashboard/sign-in", "", "X-Forwarded-Proto", "HTTPS"); strings.Contains(w.Body.String(), there) {
		t.Error("who comes by HTTPS is sent elsewhere")
	}

	// Without it, what the proxy says decides, in any case of letters.
	h.d.Close(t.Context())
	h.base = ""
	h.open(t.Context())
	for proto, want := range map[string]string{"HTTPS": secureCookieName, "https": secureCookieName, "Https, http": secureCookieName, "http": cookieName, "": cookieName} {
		w := ask("POST", "/dashboard/sign-in", in.Encode(), "X-Forwarded-Proto", proto)
		if c := w.Header().Get("Set-Cookie"); !strings.HasPrefix(c, want+"=") {
			t.Errorf("X-Forwarded-Proto %s: the cookie is %s", proto, c)
		}
	}
}
