package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	toManual    = regexp.MustCompile(`<a href="(/docs[^"#]*)(?:#([^"]*))?">(?:Manual|the manual)</a>`)
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
		if read[m[1]] == "" {
			read[m[1]] = b.see(m[1])
		}
		if m[1] != want || m[2] != "" && !strings.Contains(read[m[1]], ` id="`+m[2]+`"`) {
			t.Errorf("%s links to %s#%s", page, m[1], m[2])
		}
	}
	for page, want := range map[string]string{
		"/dashboard": "/docs/dashboard", "/dashboard/streams": "/docs/dashboard", "/dashboard/streams/new": "/docs/dashboard", stream: "/docs/dashboard",
		stream + "/delete": "/docs/dashboard", stream + "/connect": "/docs/dashboard", "/dashboard/projects": "/docs/dashboard", "/dashboard/keys": "/docs/keys",
		"/dashboard/keys/new": "/docs/keys", "/dashboard/requests": "/docs/dashboard", "/dashboard/audit": "/docs/dashboard", "/dashboard/account": "/docs/dashboard",
	} {
		check(page, b.see(page), want)
	}
	check("/dashboard/sign-in", svc.browser().see("/dashboard/sign-in"), "/docs/dashboard")

	links := regexp.MustCompile(`<a href="(/docs[a-z/-]*)"`).FindAllStringSubmatch(b.see("/docs"), -1)
	for _, l := range links {
		m := toDashboard.FindStringSubmatch(b.see(l[1]))
		if m == nil {
			t.Errorf("%s has no link to the dashboard", l[1])
			continue
		}
		if status, _, _ := b.get(m[1]); status != http.StatusOK {
			t.Errorf("%s links to %s: status %d", l[1], m[1], status)
		}
	}
	if len(links) < 15 {
		t.Errorf("the manual has only %d links", len(links))
	}
}
