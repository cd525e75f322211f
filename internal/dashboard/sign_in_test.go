package dashboard

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPasswordHash(t *testing.T) {
	hash := hashPassword("päßword 1")
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") || hash == hashPassword("päßword 1") {
		t.Errorf("the hash is %s", hash)
	}
	for password, want := range map[string]bool{"päßword 1": true, "päßword 2": false, "": false} {
		if ok, err := matches(hash, password); ok != want || err != nil {
			t.Errorf("%q matches: %t, %v", password, ok, err)
		}
	}
	for _, bad := range []string{"", "x", "$argon2id$v=19$m=1,t=0,p=1$AA$AA", "$argon2i$v=19$m=8,t=1,p=1$AA$AA", hash + "$", strings.Replace(hash, "v=19", "v=18", 1)} {
		if ok, err := matches(bad, "x"); ok || err == nil {
			t.Errorf("the hash %q is read", bad)
		}
	}
	if ok, err := matches(nobody, "x"); ok || err != nil {
		t.Errorf("the hash of nobody: %t, %v", ok, err)
	}
	for password, ok := range map[string]bool{
		"12345678": true, "1234567": false, "": false, "éééééééé": true, "1234567\n8": false, "1234567\xff8": false, strings.Repeat("x", 1024): true, strings.Repeat("x", 1025): false,
	} {
		if err := CheckPassword(password); (err == nil) != ok {
			t.Errorf("%q: %v", password, err)
		}
	}
}

// Nothing is shown to who has not signed in, or to who has an API key; and nothing under /v1 to who has a session.
func TestWayIn(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	for _, path := range []string{"/dashboard", "/dashboard/keys", "/dashboard/streams/" + string(h.stream), "/dashboard/nope", "/dashboard/audit", "/dashboard/figures"} {
		status, _, header := b.get(path)
		if to := header.Get("Location"); status != http.StatusSeeOther || !strings.HasPrefix(to, "/dashboard/sign-in") {
			t.Errorf("%s gives %d to %s", path, status, to)
		}
	}
	b.header = http.Header{"Authorization": {"Bearer " + h.key}}
	for _, path := range []string{"/dashboard", "/dashboard/figures", "/dashboard/streams/" + string(h.stream) + "/tail"} {
		if status, _, _ := b.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s takes a key: %d", path, status)
		}
	}
	if status, _, _ := b.post("/dashboard/keys/"+h.keyID+"/revoke", "sure", "1"); status != http.StatusUnauthorized {
		t.Errorf("a key revokes: %d", status)
	}
	in := h.signedIn()
	in.see("/dashboard")
	if status, _, _ := in.get("/v1/streams"); status != http.StatusUnauthorized {
		t.Errorf("/v1 takes a session: %d", status)
	}
	if _, _, header := b.get("/"); header.Get("Location") != "/dashboard" {
		t.Errorf("/ leads to %s", header.Get("Location"))
	}
}

func TestSignIn(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	for _, c := range [][2]string{{Account, "wrong"}, {"root", password}, {"", ""}} {
		status, text, header := b.post("/dashboard/sign-in", "name", c[0], "password", c[1])
		if status != http.StatusUnauthorized || !strings.Contains(text, "Name or password is wrong") || header.Get("Set-Cookie") != "" {
			t.Errorf("%v gives %d", c, status)
		}
	}
	status, _, header := b.post("/dashboard/sign-in", "name", Account, "password", password, "next", "/dashboard/keys?project=x")
	cookie := header.Get("Set-Cookie")
	if status != http.StatusSeeOther || header.Get("Location") != "/dashboard/keys?project=x" {
		t.Errorf("signing in gives %d to %s", status, header.Get("Location"))
	}
	if !strings.HasPrefix(cookie, "weir_session=") || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
		t.Errorf("the cookie is %s", cookie)
	}
	// Signing in again gives another id, and the old one is over.
	_, _, header = b.post("/dashboard/sign-in", "name", Account, "password", password)
	if header.Get("Set-Cookie") == cookie || len(h.d.sessions.list()) != 1 {
		t.Errorf("the id was not changed, or the old one still lets in: %d sessions", len(h.d.sessions.list()))
	}
	// Over TLS, that of a proxy too, it has the prefix that browsers check.
	b = h.browser()
	b.header.Set("X-Forwarded-Proto", "https")
	_, _, header = b.post("/dashboard/sign-in", "name", Account, "password", password)
	if c := header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-weir_session=") || !strings.Contains(c, "Secure") || !strings.Contains(c, "Path=/;") {
		t.Errorf("the cookie is %s", c)
	}
	for in, want := range map[string]string{
		"": "/dashboard", "https://evil.example": "/dashboard", "//evil.example": "/dashboard", "/dashboard//evil": "/dashboard", "/dashboardx": "/dashboard",
		"/dashboard/\\evil": "/dashboard", "/v1/streams": "/dashboard", "/dashboard/streams?q=a": "/dashboard/streams?q=a", "/dashboard?span=day": "/dashboard?span=day",
		"/dashboard/sign-in": "/dashboard",
	} {
		if got := local(in); got != want {
			t.Errorf("next %q leads to %q, want %q", in, got, want)
		}
	}
	for _, secret := range []string{password, "wrong", "weir_session", "argon2id"} {
		if strings.Contains(h.log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// Who guesses has to wait, from one address; another one has not.
func TestThrottle(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	for range maxFailures {
		b.post("/dashboard/sign-in", "name", Account, "password", "guess")
	}
	status, text, header := b.post("/dashboard/sign-in", "name", Account, "password", password)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(text, "Too many attempts") {
		t.Errorf("after %d failures: %d", maxFailures, status)
	}
	h.clock.advance(failureWindow)
	if status, _, _ := b.post("/dashboard/sign-in", "name", Account, "password", password); status != http.StatusSeeOther {
		t.Errorf("after the wait: %d", status)
	}

}

// No flood of addresses locks out who is known, and it is bounded itself.
func TestThrottleFlood(t *testing.T) {
	now := time.Unix(1e9, 0)
	th := newThrottle(func() time.Time { return now })
	ip := netip.MustParseAddr
	for range maxFailures {
		th.try(ip("2001:db8::1"))
	}
	if th.try(ip("2001:db8::2")) == 0 || th.try(ip("2001:db8:0:1::")) != 0 {
		t.Error("IPv6 is not counted by its /64")
	}
	operator := ip("192.0.2.1")
	for range 3 * maxFailures { // successes are no failures
		if th.try(operator) != 0 {
			t.Fatal("who signs in often has to wait")
		}
		th.succeeded(operator)
	}
	heard := 0
	for i := range maxThrottled + 100 {
		if th.try(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})) == 0 {
			heard++
		}
	}
	if len(th.all) != maxThrottled || heard > maxStrangers {
		t.Errorf("%d addresses are remembered, %d of the flood were heard", len(th.all), heard)
	}
	for i := range maxFailures {
		if th.try(operator) != 0 {
			t.Fatalf("the operator is locked out after %d failures of their own", i)
		}
	}
	if th.try(operator) == 0 {
		t.Error("who is known may guess for ever")
	}
	now = now.Add(failureWindow)
	if th.try(ip("203.0.113.1")) != 0 {
		t.Error("a stranger has to wait after the flood")
	}
	for i := range 2 * maxKnown {
		th.succeeded(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	if len(th.known) != maxKnown {
		t.Errorf("%d addresses are known", len(th.known))
	}
}

// A session ends when nobody uses it, when it is too old, when it is signed out of, and when the password is changed.
func TestSessionsEnd(t *testing.T) {
	h := newHouse(t)
	in := func(b *browser) bool {
		status, _, _ := b.get("/dashboard/account")
		return status == http.StatusOK
	}
	b := h.signedIn()
	h.clock.advance(idleFor - time.Minute)
	if !in(b) {
		t.Fatal("it ends too early")
	}
	h.clock.advance(idleFor - time.Minute)
	if !in(b) {
		t.Fatal("a use does not prolong it")
	}
	h.clock.advance(idleFor)
	if in(b) {
		t.Fatal("nobody used it, and it goes on")
	}
	b = h.signedIn()
	for range lastsFor / (idleFor / 2) {
		h.clock.advance(idleFor / 2)
		in(b)
	}
	if in(b) {
		t.Error("it goes on for ever")
	}

	b, other := h.signedIn(), h.signedIn()
	if b.post("/dashboard/account/sessions"); !in(b) || in(other) {
		t.Error("signing out everywhere else")
	}
	if b.post("/dashboard/sign-out"); in(b) {
		t.Error("signing out")
	}

	b, other = h.signedIn(), h.signedIn()
	for _, c := range [][3]string{{"wrong", "new password", "new password"}, {password, "new password", "another one"}, {password, "short", "short"}} {
		b.post("/dashboard/account/password", "old", c[0], "new", c[1], "again", c[2])
		if text := b.see("/dashboard/account"); !strings.Contains(text, "notice bad") || !in(other) {
			t.Errorf("%v changed something", c)
		}
	}
	b.post("/dashboard/account/password", "old", password, "new", "new password", "again", "new password")
	if !in(b) || in(other) {
		t.Error("changing the password")
	}
	if status, _, _ := h.browser().post("/dashboard/sign-in", "name", Account, "password", password); status != http.StatusUnauthorized {
		t.Errorf("the old password: %d", status)
	}
	h.must(h.d.UsePassword(context.Background(), "new password"))
	if !in(b) {
		t.Error("the same password from a file signed out")
	}
	h.must(h.d.UsePassword(context.Background(), "from a file"))
	if in(b) {
		t.Error("another password from a file did not sign out")
	}
	if err := h.d.UsePassword(context.Background(), "short"); err == nil {
		t.Error("a short password was taken")
	}
}

// Requests that come from another site change nothing.
func TestCrossOrigin(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	for _, header := range []http.Header{
		{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}, {"Origin": {"null"}},
	} {
		header.Set("Accept", "text/html")
		b.header = header
		if status, _, _ := b.post("/dashboard/projects", "name", "evil"); status != http.StatusForbidden {
			t.Errorf("%v gives %d", header, status)
		}
	}
	if _, ok := h.access.ProjectNamed("evil"); ok {
		t.Error("it was carried out")
	}
	b.header = http.Header{"Accept": {"text/html"}, "Sec-Fetch-Site": {"same-origin"}}
	if status, _, _ := b.post("/dashboard/projects", "name", "good"); status != http.StatusSeeOther {
		t.Errorf("of its own: %d", status)
	}
	_, _, header := b.get("/dashboard")
	if p := header.Get("Content-Security-Policy"); p != policy || strings.Contains(p, "unsafe") || header.Get("Cache-Control") != "no-store" {
		t.Errorf("header fields: %v", header)
	}
}

// What is stored of the account and the audit log is there after a restart, and the audit log is bounded.
func TestStored(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	h.d.Close(context.Background())
	h.open(context.Background())
	b = h.signedIn()
	if text := b.see("/dashboard/audit"); !strings.Contains(text, "project created") || !strings.Contains(text, "audited") || !strings.Contains(text, "signed in") {
		t.Errorf("the audit log is %s", text)
	}
	if text := b.see("/dashboard/audit?q=nothing+of+the+sort"); strings.Contains(text, "audited") {
		t.Error("the search finds what it should not")
	}
	for range maxAudit {
		h.d.Note(context.Background(), "test", "flood", "")
	}
	if n := len(h.d.searchAudit("")); n != maxAudit {
		t.Errorf("%d entries", n)
	}
	docs, err := h.engine.List(context.Background(), AuditPrefix, "", 2*maxAudit)
	if err != nil || len(docs) != maxAudit {
		t.Errorf("%d documents, %v", len(docs), err)
	}
}
