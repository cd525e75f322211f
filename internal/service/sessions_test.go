package service_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// visitor is a browser behind a load balancer: each of its requests names the node that gets it.
type visitor struct {
	t *testing.T
	*http.Client
}

func newVisitor(t *testing.T) visitor {
	jar, err := cookiejar.New(nil) // a jar does not distinguish ports, so all nodes get the same cookies
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return visitor{t, &http.Client{
		Jar: jar, Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a GET request, or a POST request if there are fields. It returns the status, the body
// and the place to which the node redirects.
func (v visitor) ask(s *servicetest.Service, path string, fields ...string) (status int, text, to string) {
	v.t.Helper()
	method, form := http.MethodGet, url.Values{}
	for i := 0; i < len(fields); i += 2 {
		method = http.MethodPost
		form.Set(fields[i], fields[i+1])
	}
	r, err := http.NewRequest(method, s.HTTP+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := v.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header.Get("Location")
}

func (v visitor) signIn(s *servicetest.Service, password string) {
	v.t.Helper()
	if status, text, _ := v.ask(s, "/dashboard/sign-in", "name", dashboard.Account, "password", password); status != http.StatusSeeOther {
		v.t.Fatalf("sign-in: %d %s", status, text)
	}
}

// awaitSignedOut waits until a node redirects the browser to the sign-in page.
func (v visitor) awaitSignedOut(s *servicetest.Service) {
	v.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(time.Minute); ; <-tick.C {
		status, _, to := v.ask(s, "/dashboard/account")
		if status == http.StatusSeeOther && strings.HasPrefix(to, "/dashboard/sign-in") {
			return
		}
		if time.Now().After(late) {
			v.t.Fatalf("the node still answers %d", status)
		}
	}
}

// Two nodes share a store, and every request goes to the node that did not get the one before. A
// person who signed in on one node is signed in on the other at once. A new key and a message
// appear on the next page. A sign-out, the end of all other sessions and a new password take effect
// on both nodes.
func TestSessionsOnAllNodes(t *testing.T) {
	nats := natstest.Start(t, true)
	a, b := startNode(t, nats, nats.URL, nil), startNode(t, nats, nats.URL, nil)
	const password, changed = "correct horse", "battery staple"
	if err := a.Dashboard.UsePassword(context.Background(), password); err != nil {
		t.Fatal(err)
	}
	if err := b.Dashboard.UsePassword(context.Background(), password); err != nil { // returns when node b knows the password
		t.Fatal(err)
	}
	v := newVisitor(t)
	for _, nodes := range [][2]*servicetest.Service{{a, b}, {b, a}, {a, b}} {
		v.signIn(nodes[0], password)
		tick := time.NewTicker(5 * time.Millisecond)
		for late := time.Now().Add(time.Minute); ; <-tick.C { // a sign-in stores the new session, and then deletes the old one
			status, text, to := v.ask(nodes[1], "/dashboard/account")
			if status != http.StatusOK {
				t.Fatalf("the other node after a sign-in: %d, redirect to %s", status, to)
			}
			n := strings.Count(text, `data-label="Session"`)
			if n == 1 {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("the account page lists %d sessions, want 1, because a sign-in replaces the old session", n)
			}
		}
		tick.Stop()
	}

	status, text, page := v.ask(b, "/dashboard/keys", "project", string(a.Project), "name", "new", "kind", "live", "permission", "read")
	if status != http.StatusSeeOther {
		t.Fatalf("create a key: %d %s", status, text)
	}
	secret := regexp.MustCompile(`svc_live_[0-9a-f]{32}`)
	if status, text, _ = v.ask(a, page); status != http.StatusOK || !secret.MatchString(text) {
		t.Errorf("the page of a new key on the other node: %d, want 200 with the key: %s", status, text)
	}
	if _, text, _ = v.ask(b, page); secret.MatchString(text) {
		t.Error("a new key was shown twice")
	}
	v.ask(a, "/dashboard/projects", "name", "") // refused with a message
	if _, text, _ = v.ask(b, "/dashboard/projects"); !strings.Contains(text, "notice bad") {
		t.Error("the other node does not show the message")
	}

	other := newVisitor(t)
	other.signIn(b, password)
	v.ask(a, "/dashboard/account/sessions", "all", "1")
	other.awaitSignedOut(a)
	other.awaitSignedOut(b)
	if status, _, _ := v.ask(b, "/dashboard/account"); status != http.StatusOK {
		t.Errorf("ending all other sessions ended this one: %d", status)
	}
	at, err := url.Parse(a.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	thief := newVisitor(t) // keeps the cookie that the sign-out removes from the browser
	thief.Jar.SetCookies(at, v.Jar.Cookies(at))
	v.ask(b, "/dashboard/sign-out", "sure", "1")
	thief.awaitSignedOut(a)
	thief.awaitSignedOut(b)

	v.signIn(a, password)
	if err := b.Dashboard.UsePassword(context.Background(), changed); err != nil {
		t.Fatal(err)
	}
	v.awaitSignedOut(b)
	v.awaitSignedOut(a)
}
