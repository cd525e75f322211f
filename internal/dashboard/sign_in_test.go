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
		t.Errorf("the hash has other parameters, or no random salt: %s", hash)
	}
	for password, want := range map[string]bool{"päßword 1": true, "päßword 2": false, "": false} {
		if ok, err := matches(hash, password); ok != want || err != nil {
			t.Errorf("matches(%q) = %t, %v, want %t", password, ok, err, want)
		}
	}
	for _, bad := range []string{"", "x", "$argon2id$v=19$m=1,t=0,p=1$AA$AA", "$argon2i$v=19$m=8,t=1,p=1$AA$AA", hash + "$", strings.Replace(hash, "v=19", "v=18", 1)} {
		if ok, err := matches(bad, "x"); ok || err == nil {
			t.Errorf("the malformed hash %q is accepted", bad)
		}
	}
	if ok, err := matches(unmatchable, "x"); ok || err != nil {
		t.Errorf("matches(unmatchable) = %t, %v, want false and no error", ok, err)
	}
	for password, ok := range map[string]bool{
		"12345678": false, "82736455": false, "bafegudo": true, "bafegud": false, "": false, "éàüöñøçß": true, "bafegud\no": false, "bafegud\xffo": false, strings.Repeat("bafegudo", 128): true, strings.Repeat("bafegudo", 128) + "x": false,
	} {
		if err := CheckPassword(password); (err == nil) != ok {
			t.Errorf("CheckPassword(%q): %v, want acceptable: %t", password, err, ok)
		}
	}
}

// No page is shown without a session or to an API key, and nothing under /v1 accepts a session.
func TestAuthentication(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	for _, path := range []string{"/dashboard", "/dashboard/keys", "/dashboard/streams/" + string(h.stream), "/dashboard/nope", "/dashboard/audit", "/dashboard/figures"} {
		status, _, header := b.get(path)
		if to := header.Get("Location"); status != http.StatusSeeOther || !strings.HasPrefix(to, "/dashboard/sign-in") {
			t.Errorf("%s: status %d to %q, want a redirect to the sign-in page", path, status, to)
		}
	}
	b.header = http.Header{"Authorization": {"Bearer " + h.key}}
	for _, path := range []string{"/dashboard", "/dashboard/figures", "/dashboard/streams/" + string(h.stream) + "/tail"} {
		if status, _, _ := b.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s with a key: status %d, want 401", path, status)
		}
	}
	if status, _, _ := b.post("/dashboard/keys/"+h.keyID+"/revoke", "sure", "1"); status != http.StatusUnauthorized {
		t.Errorf("revoke with a key: status %d, want 401", status)
	}
	in := h.signedIn()
	in.see("/dashboard")
	if status, _, _ := in.get("/v1/streams"); status != http.StatusUnauthorized {
		t.Errorf("/v1 with a session: status %d, want 401", status)
	}
	if _, _, header := b.get("/"); header.Get("Location") != "/dashboard" {
		t.Errorf("/ redirects to %q, want /dashboard", header.Get("Location"))
	}
}

func TestSignIn(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	for _, c := range [][2]string{{Account, "wrong"}, {"root", password}, {"", ""}} {
		status, text, header := b.post("/dashboard/sign-in", "name", c[0], "password", c[1])
		if status != http.StatusUnauthorized || !strings.Contains(text, "Wrong name or password") || header.Get("Set-Cookie") != "" {
			t.Errorf("sign-in as %v: status %d, want 401 and no cookie", c, status)
		}
	}
	status, _, header := b.post("/dashboard/sign-in", "name", Account, "password", password, "next", "/dashboard/keys?project=x")
	cookie := header.Get("Set-Cookie")
	if status != http.StatusSeeOther || header.Get("Location") != "/dashboard/keys?project=x" {
		t.Errorf("sign-in: status %d to %q", status, header.Get("Location"))
	}
	if !strings.HasPrefix(cookie, "weir_session=") || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
		t.Errorf("cookie over HTTP: %s", cookie)
	}
	// Signing in again gives a new token and ends the old session.
	_, _, header = b.post("/dashboard/sign-in", "name", Account, "password", password)
	if header.Get("Set-Cookie") == cookie || len(h.d.sessions.list()) != 1 {
		t.Errorf("the token is the same, or the old session has not ended: %d sessions", len(h.d.sessions.list()))
	}
	// Over TLS, also TLS that a proxy terminates, the cookie name has the __Host- prefix.
	b = h.browser()
	b.header.Set("X-Forwarded-Proto", "https")
	_, _, header = b.post("/dashboard/sign-in", "name", Account, "password", password)
	if c := header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-weir_session=") || !strings.Contains(c, "Secure") || !strings.Contains(c, "Path=/;") {
		t.Errorf("cookie over TLS: %s", c)
	}
	for in, want := range map[string]string{
		"": "/dashboard", "https://evil.example": "/dashboard", "//evil.example": "/dashboard", "/dashboard//evil": "/dashboard", "/dashboardx": "/dashboard",
		"/dashboard/\\evil": "/dashboard", "/v1/streams": "/dashboard", "/dashboard/streams?q=a": "/dashboard/streams?q=a", "/dashboard?span=day": "/dashboard?span=day",
		"/dashboard/sign-in": "/dashboard",
	} {
		if got := local(in); got != want {
			t.Errorf("local(%q) = %q, want %q", in, got, want)
		}
	}
	for _, secret := range []string{password, "wrong", "weir_session", "argon2id"} {
		if strings.Contains(h.log.String(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}

// After too many failures an address must wait, even with the correct password.
func TestThrottle(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	for range maxFailures {
		b.post("/dashboard/sign-in", "name", Account, "password", "guess")
	}
	status, text, header := b.post("/dashboard/sign-in", "name", Account, "password", password)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(text, "Too many attempts") {
		t.Errorf("sign-in after %d failures: status %d, want 429", maxFailures, status)
	}
	h.clock.advance(failureWindow)
	if status, _, _ := b.post("/dashboard/sign-in", "name", Account, "password", password); status != http.StatusSeeOther {
		t.Errorf("sign-in after the wait: status %d, want 303", status)
	}
}

// A flood of guesses from many addresses is limited in total, and does not lock out an address that
// has signed in before.
func TestThrottleFlood(t *testing.T) {
	now := time.Unix(1e9, 0)
	th := newThrottle(func() time.Time { return now })
	ip := netip.MustParseAddr
	for range maxFailures {
		th.try(ip("2001:db8::1"))
	}
	if th.try(ip("2001:db8::2")) == 0 || th.try(ip("2001:db8:0:1::")) != 0 {
		t.Error("IPv6 addresses are not counted per /64 network")
	}
	operator := ip("192.0.2.1")
	for range 3 * maxFailures { // successful sign-ins do not count
		if th.try(operator) != 0 {
			t.Fatal("frequent successful sign-ins are throttled")
		}
		th.succeeded(operator)
	}
	allowed := 0
	for i := range maxThrottled + 100 {
		if th.try(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})) == 0 {
			allowed++
		}
	}
	if len(th.all) != maxThrottled || allowed > maxStrangers {
		t.Errorf("%d addresses are remembered, want %d; %d attempts were allowed, want at most %d", len(th.all), maxThrottled, allowed, maxStrangers)
	}
	for i := range maxFailures {
		if th.try(operator) != 0 {
			t.Fatalf("the operator is locked out after only %d failures", i)
		}
	}
	if th.try(operator) == 0 {
		t.Error("a known address is never throttled")
	}
	now = now.Add(failureWindow)
	if th.try(ip("203.0.113.1")) != 0 {
		t.Error("an unknown address is still throttled after the flood")
	}
	for i := range 2 * maxKnown {
		th.succeeded(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	if len(th.known) != maxKnown {
		t.Errorf("%d known addresses, want %d", len(th.known), maxKnown)
	}
}

// A session ends when it is idle or too old, on sign-out, and when the password changes.
func TestSessionsEnd(t *testing.T) {
	h := newHouse(t)
	in := func(b *browser) bool {
		status, _, _ := b.get("/dashboard/account")
		return status == http.StatusOK
	}
	b := h.signedIn()
	h.clock.advance(idleFor - time.Minute)
	if !in(b) {
		t.Fatal("the session ended before the idle timeout")
	}
	h.clock.advance(idleFor - time.Minute)
	if !in(b) {
		t.Fatal("using the session did not extend it")
	}
	h.clock.advance(idleFor)
	if in(b) {
		t.Fatal("the session outlived the idle timeout")
	}
	b = h.signedIn()
	for range lastsFor / (idleFor / 2) {
		h.clock.advance(idleFor / 2)
		in(b)
	}
	if in(b) {
		t.Error("the session outlived its maximum lifetime")
	}

	b, other := h.signedIn(), h.signedIn()
	if b.post("/dashboard/account/sessions"); !in(b) || in(other) {
		t.Error("signing out all other sessions ended the wrong ones")
	}
	if b.post("/dashboard/sign-out"); in(b) {
		t.Error("the session continues after the sign-out")
	}

	b, other = h.signedIn(), h.signedIn()
	for _, c := range [][3]string{{"wrong", "new password", "new password"}, {password, "new password", "another one"}, {password, "short", "short"}} {
		b.post("/dashboard/account/password", "old", c[0], "new", c[1], "again", c[2])
		if text := b.see("/dashboard/account"); !strings.Contains(text, "notice bad") || !in(other) {
			t.Errorf("the password change %v was accepted, or ended another session", c)
		}
	}
	b.post("/dashboard/account/password", "old", password, "new", "new password", "again", "new password")
	if !in(b) || in(other) {
		t.Error("a password change did not end exactly the other sessions")
	}
	if status, _, _ := h.browser().post("/dashboard/sign-in", "name", Account, "password", password); status != http.StatusUnauthorized {
		t.Errorf("sign-in with the old password: status %d, want 401", status)
	}
	h.must(h.d.UsePassword(context.Background(), "new password"))
	if !in(b) {
		t.Error("reading the same password from a file ended a session")
	}
	h.must(h.d.UsePassword(context.Background(), "from a file"))
	if in(b) {
		t.Error("reading a different password from a file did not end the session")
	}
	if err := h.d.UsePassword(context.Background(), "short"); err == nil {
		t.Error("a password that is too short was accepted")
	}
}

// Requests from other sites are refused and change nothing.
func TestCrossOrigin(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	for _, header := range []http.Header{
		{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}, {"Origin": {"null"}},
	} {
		header.Set("Accept", "text/html")
		b.header = header
		if status, _, _ := b.post("/dashboard/projects", "name", "evil"); status != http.StatusForbidden {
			t.Errorf("request with %v: status %d, want 403", header, status)
		}
	}
	if _, ok := h.access.ProjectNamed("evil"); ok {
		t.Error("a request from another site created a project")
	}
	b.header = http.Header{"Accept": {"text/html"}, "Sec-Fetch-Site": {"same-origin"}}
	if status, _, _ := b.post("/dashboard/projects", "name", "good"); status != http.StatusSeeOther {
		t.Errorf("request from the same origin: status %d, want 303", status)
	}
	_, _, header := b.get("/dashboard")
	if p := header.Get("Content-Security-Policy"); p != policy || strings.Contains(p, "unsafe") || header.Get("Cache-Control") != "no-store" {
		t.Errorf("unexpected header fields: %v", header)
	}
}

// The account and the audit log survive a restart, and the audit log has a limit.
func TestStored(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	h.d.Close(context.Background())
	h.open(context.Background())
	b = h.signedIn()
	if text := b.see("/dashboard/audit"); !strings.Contains(text, "project created") || !strings.Contains(text, "audited") || !strings.Contains(text, "signed in") {
		t.Errorf("the audit log lacks entries from before the restart: %s", text)
	}
	if text := b.see("/dashboard/audit?q=nothing+of+the+sort"); strings.Contains(text, "audited") {
		t.Error("the search returns entries that do not match")
	}
	for range maxAudit {
		h.d.Note(context.Background(), "test", "flood", "")
	}
	if n := len(h.d.searchAudit("")); n != maxAudit {
		t.Errorf("%d entries in memory, want %d", n, maxAudit)
	}
	docs, err := h.engine.List(context.Background(), AuditPrefix, "", 2*maxAudit)
	if err != nil || len(docs) != maxAudit {
		t.Errorf("%d stored entries, want %d; error %v", len(docs), maxAudit, err)
	}
}
