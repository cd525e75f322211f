package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	toManual    = regexp.MustCompile(`<a href="(/docs[^"]*)">(?:Manual|the manual)</a>`)
	toDashboard = regexp.MustCompile(`<a href="(/dashboard[^"]*)">Dashboard: `)
)

// Every page links to the place in the manual that explains it, and every page of the manual links
// back to a page of the dashboard.
func TestManualLinks(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	stream := "/dashboard/streams/" + string(svc.stream)
	read := map[string]string{}
	check := func(page, text, want string) {
		m := toManual.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s has no link to the manual", page)
			return
		}
		if m[1] != want {
			t.Errorf("%s links to %s, want %s", page, m[1], want)
		}
		path, anchor, _ := strings.Cut(m[1], "#")
		if read[path] == "" {
			read[path] = b.see(path)
		}
		if anchor != "" && !strings.Contains(read[path], ` id="`+anchor+`"`) {
			t.Errorf("%s links to %s, but the manual has no such section", page, m[1])
		}
	}
	for page, want := range map[string]string{
		"/dashboard": "#overview", "/dashboard/streams": "#streams", "/dashboard/streams/new": "#streams", stream: "#one-stream-and-its-events",
		stream + "/delete": "#streams", stream + "/connect": "#one-stream-and-its-events", "/dashboard/projects": "#projects-and-keys",
		"/dashboard/requests": "#requests", "/dashboard/audit": "#audit-log", "/dashboard/account": "#sign-in",
	} {
		check(page, b.see(page), "/docs/dashboard"+want)
	}
	check("/dashboard/keys", b.see("/dashboard/keys"), "/docs/keys")
	check("/dashboard/keys/new", b.see("/dashboard/keys/new"), "/docs/keys#create-keys")
	check("/dashboard/sign-in", svc.browser().see("/dashboard/sign-in"), "/docs/dashboard#sign-in")

	links := regexp.MustCompile(`<a href="(/docs[a-z/-]*)"`).FindAllStringSubmatch(b.see("/docs"), -1)
	wants := map[string]string{"/docs": "/dashboard", "/docs/keys": "/dashboard/keys", "/docs/errors": "/dashboard/requests", "/docs/publishing": "/dashboard/streams"}
	for _, l := range links {
		m := toDashboard.FindStringSubmatch(b.see(l[1]))
		if m == nil {
			t.Errorf("%s has no link to the dashboard", l[1])
			continue
		}
		if want := wants[l[1]]; want != "" && m[1] != want {
			t.Errorf("%s links to %s, want %s", l[1], m[1], want)
		}
		if status, _, _ := b.get(m[1]); status != http.StatusOK {
			t.Errorf("%s links to %s: status %d", l[1], m[1], status)
		}
	}
	if len(links) < 15 {
		t.Errorf("the manual has only %d links", len(links))
	}
}
