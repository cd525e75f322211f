package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
)

// Every page requires a session. An API key does not open a page, and nothing under /v1 accepts a
// session.
func TestAuthentication(t *testing.T) {
	svc := startService(t)
	b := svc.browser()
	for _, path := range []string{"/dashboard", "/dashboard/keys", "/dashboard/streams/" + string(svc.stream), "/dashboard/nope", "/dashboard/audit", "/dashboard/figures"} {
		status, _, header := b.get(path)
		if to := header.Get("Location"); status != http.StatusSeeOther || !strings.HasPrefix(to, "/dashboard/sign-in") {
			t.Errorf("%s: status %d, redirect to %q; want a redirect to the sign-in page", path, status, to)
		}
	}
	b.header = http.Header{"Authorization": {"Bearer " + svc.key}}
	for _, path := range []string{"/dashboard", "/dashboard/figures", "/dashboard/streams/" + string(svc.stream) + "/events"} {
		if status, _, _ := b.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s with a key: status %d, want 401", path, status)
		}
	}
	if status, _, _ := b.post("/dashboard/keys/"+svc.keyID+"/revoke", "sure", "1"); status != http.StatusUnauthorized {
		t.Errorf("revoke with a key: status %d, want 401", status)
	}
	in := svc.signedIn()
	in.see("/dashboard")
	if status, _, _ := in.get("/v1/streams"); status != http.StatusUnauthorized {
		t.Errorf("/v1 with a session: status %d, want 401", status)
	}
	if _, _, header := b.get("/"); header.Get("Location") != "/dashboard" {
		t.Errorf("/ redirects to %q, want /dashboard", header.Get("Location"))
	}
}

func TestSignIn(t *testing.T) {
	svc := startService(t)
	b := svc.browser()
	for _, c := range [][2]string{{dashboard.Account, "wrong"}, {"root", password}, {"", ""}} {
		status, text, header := b.post("/dashboard/sign-in", "name", c[0], "password", c[1])
		if status != http.StatusUnauthorized || !strings.Contains(text, "Wrong name or password") || header.Get("Set-Cookie") != "" {
			t.Errorf("sign-in as %v: status %d, want 401 and no cookie", c, status)
		}
	}
	status, _, header := b.post("/dashboard/sign-in", "name", dashboard.Account, "password", password, "next", "/dashboard/keys?project=x")
	cookie := header.Get("Set-Cookie")
	if status != http.StatusSeeOther || header.Get("Location") != "/dashboard/keys?project=x" {
		t.Errorf("sign-in: status %d, redirect to %q", status, header.Get("Location"))
	}
	if !strings.HasPrefix(cookie, "weir_session=") || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Lax") {
		t.Errorf("cookie over HTTP: %s", cookie)
	}
	// Signing in again gives a new token and ends the old session.
	_, _, header = b.post("/dashboard/sign-in", "name", dashboard.Account, "password", password)
	if header.Get("Set-Cookie") == cookie || dashboard.Sessions(svc.Dashboard) != 1 {
		t.Errorf("the second sign-in got the same token, or the old session has not ended: %d sessions", dashboard.Sessions(svc.Dashboard))
	}
	// Over TLS, even if a proxy terminates it, the cookie name has the __Host- prefix.
	b = svc.browser()
	b.header.Set("X-Forwarded-Proto", "https")
	_, _, header = b.post("/dashboard/sign-in", "name", dashboard.Account, "password", password)
	if c := header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-weir_session=") || !strings.Contains(c, "Secure") || !strings.Contains(c, "Path=/;") {
		t.Errorf("cookie over TLS: %s", c)
	}
	for _, secret := range []string{password, "wrong", "weir_session", "argon2id"} {
		if strings.Contains(svc.log(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}

// After too many failures an address must wait, even with the correct password.
func TestThrottle(t *testing.T) {
	svc := startService(t)
	b := svc.browser()
	for range dashboard.MaxFailures {
		b.post("/dashboard/sign-in", "name", dashboard.Account, "password", "guess")
	}
	status, text, header := b.post("/dashboard/sign-in", "name", dashboard.Account, "password", password)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(text, "Too many attempts") {
		t.Errorf("sign-in after %d failures: status %d, want 429", dashboard.MaxFailures, status)
	}
	svc.clock.advance(dashboard.FailureWindow)
	if status, _, _ := b.post("/dashboard/sign-in", "name", dashboard.Account, "password", password); status != http.StatusSeeOther {
		t.Errorf("sign-in after the wait: status %d, want 303", status)
	}
}

// A session ends when it is idle or too old, on sign-out, and when the password changes.
func TestSessionsEnd(t *testing.T) {
	svc := startService(t)
	in := func(b *browser) bool {
		status, _, _ := b.get("/dashboard/account")
		return status == http.StatusOK
	}
	b := svc.signedIn()
	svc.clock.advance(dashboard.IdleFor - time.Minute)
	if !in(b) {
		t.Fatal("the session ended before the idle timeout")
	}
	svc.clock.advance(dashboard.IdleFor - time.Minute)
	if !in(b) {
		t.Fatal("using the session did not extend it")
	}
	svc.clock.advance(dashboard.IdleFor)
	if in(b) {
		t.Fatal("the session outlived the idle timeout")
	}
	b = svc.signedIn()
	for range dashboard.LastsFor / (dashboard.IdleFor / 2) {
		svc.clock.advance(dashboard.IdleFor / 2)
		in(b)
	}
	if in(b) {
		t.Error("the session outlived its maximum lifetime")
	}

	b, other := svc.signedIn(), svc.signedIn()
	if b.post("/dashboard/account/sessions"); !in(b) || in(other) {
		t.Error("signing out all other sessions ended this session, or left another one")
	}
	if b.post("/dashboard/sign-out"); in(b) {
		t.Error("the session continues after the sign-out")
	}

	b, other = svc.signedIn(), svc.signedIn()
	for _, c := range [][3]string{{"wrong", "new password", "new password"}, {password, "new password", "another one"}, {password, "short", "short"}} {
		b.post("/dashboard/account/password", "old", c[0], "new", c[1], "again", c[2])
		if text := b.see("/dashboard/account"); !strings.Contains(text, "notice bad") || !in(other) {
			t.Errorf("the invalid password change %v was accepted, or it ended another session", c)
		}
	}
	b.post("/dashboard/account/password", "old", password, "new", "new password", "again", "new password")
	if !in(b) || in(other) {
		t.Error("a password change ended this session, or left another one")
	}
	if status, _, _ := svc.browser().post("/dashboard/sign-in", "name", dashboard.Account, "password", password); status != http.StatusUnauthorized {
		t.Errorf("sign-in with the old password: status %d, want 401", status)
	}
	svc.must(svc.Dashboard.UsePassword(context.Background(), "new password"))
	if !in(b) {
		t.Error("reading the same password from a file ended a session")
	}
	svc.must(svc.Dashboard.UsePassword(context.Background(), "from a file"))
	if in(b) {
		t.Error("reading a different password from a file did not end the session")
	}
	if err := svc.Dashboard.UsePassword(context.Background(), "short"); err == nil {
		t.Error("a password that is too short was accepted")
	}
}

// Requests from other sites are refused and change nothing.
func TestCrossOrigin(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	for _, header := range []http.Header{
		{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}}, {"Origin": {"https://evil.example"}}, {"Origin": {"null"}},
	} {
		header.Set("Accept", "text/html")
		b.header = header
		if status, _, _ := b.post("/dashboard/projects", "name", "evil"); status != http.StatusForbidden {
			t.Errorf("request with %v: status %d, want 403", header, status)
		}
	}
	if _, ok := svc.Access.ProjectNamed("evil"); ok {
		t.Error("a request from another site created a project")
	}
	b.header = http.Header{"Accept": {"text/html"}, "Sec-Fetch-Site": {"same-origin"}}
	if status, _, _ := b.post("/dashboard/projects", "name", "good"); status != http.StatusSeeOther {
		t.Errorf("request from the same origin: status %d, want 303", status)
	}
	_, _, header := b.get("/dashboard")
	if p := header.Get("Content-Security-Policy"); p != dashboard.Policy || strings.Contains(p, "unsafe") || header.Get("Cache-Control") != "no-store" {
		t.Errorf("unexpected header fields: %v", header)
	}
}

// The account and the audit log survive a restart, and the audit log has a limit.
func TestStored(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	svc.restart()
	b = svc.signedIn()
	if text := b.see("/dashboard/audit"); !strings.Contains(text, "project created") || !strings.Contains(text, "audited") || !strings.Contains(text, "signed in") {
		t.Errorf("the audit log lacks entries from before the restart: %s", text)
	}
	if text := b.see("/dashboard/audit?q=nothing+of+the+sort"); strings.Contains(text, "audited") {
		t.Error("the search returns entries that do not match")
	}
	for range dashboard.MaxAudit {
		svc.Dashboard.Note(context.Background(), "test", "flood", "")
	}
	if n := len(dashboard.SearchAudit(svc.Dashboard, "")); n != dashboard.MaxAudit {
		t.Errorf("%d entries in memory, want %d", n, dashboard.MaxAudit)
	}
	docs, err := svc.engine.List(context.Background(), dashboard.AuditPrefix, "", 2*dashboard.MaxAudit)
	if err != nil || len(docs) != dashboard.MaxAudit {
		t.Errorf("%d stored entries, want %d; error %v", len(docs), dashboard.MaxAudit, err)
	}
}
