package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
)

// home is the address from which the programs of the tests act.
var home = netip.MustParseAddr("192.0.2.7")

var tokenPattern = regexp.MustCompile(`svc_mgmt_[0-9a-f]{32}`)

// A management token is created and revoked on the account page, and shown once, only to the session
// that created it.
func TestTokens(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	const page = "/dashboard/account"
	if status, _, _ := b.post(page+"/tokens", "name", "of a backend"); status != http.StatusSeeOther {
		t.Fatalf("create a token: status %d", status)
	}
	if other := svc.signedIn(); tokenPattern.MatchString(other.see(page)) {
		t.Error("another session sees the token")
	}
	token := tokenPattern.FindString(b.see(page))
	if token == "" {
		t.Fatal("the page does not show the new token")
	}
	if text := b.see(page); strings.Contains(text, token) || !strings.Contains(text, "of a backend") || !strings.Contains(text, token[:12]+"...") {
		t.Errorf("the page shows the token twice, or not in its list: %s", text)
	}
	status, id := svc.v1("POST", "/manage/v1/keys", token, fmt.Sprintf(`{"project":%q,"name":"of ann","revoke_after":3600}`, svc.Project))
	if status != http.StatusCreated {
		t.Errorf("create a key with the token: status %d, want 201", status)
	}
	if text := b.see("/dashboard/requests?id=" + id); !strings.Contains(text, "POST /manage/v1/keys") {
		t.Errorf("the lookup does not find the request: %s", text)
	}
	for _, k := range svc.Access.Keys(svc.Project) {
		if k.Name == "of ann" && !strings.Contains(b.see("/dashboard/keys/"+k.ID), "Revokes itself") {
			t.Error("the page of the key does not say when it revokes itself")
		}
	}
	b.post(page + "/tokens/" + svc.Access.Tokens()[0].ID)
	if status, _ := svc.v1("GET", "/manage/v1/keys", token, ""); status != http.StatusUnauthorized {
		t.Errorf("with the revoked token: status %d, want 401", status)
	}
	if text := b.see(page); !strings.Contains(text, ">revoked<") {
		t.Errorf("the page does not show that the token is revoked: %s", text)
	}
	text := b.see("/dashboard/audit")
	for _, what := range []string{"token created", "token revoked", "key created", "management token " + svc.Access.Tokens()[0].ID} {
		if !strings.Contains(text, what) {
			t.Errorf("the audit log lacks %q", what)
		}
	}
	if strings.Contains(svc.log()+text, token[12:30]) {
		t.Error("the log or the audit log contains the token")
	}
}

// Every change that a program makes is in the audit log, with the address of the program, as a
// trusted proxy reports it. Requests that change nothing are not in the log.
func TestAuditHasTheAddressOfAProgram(t *testing.T) {
	svc := startService(t, "--trusted-proxies", "127.0.0.1")
	send := func(method, path, key, body string, want int, field ...string) {
		t.Helper()
		r, err := http.NewRequest(method, svc.HTTP+path, strings.NewReader(body))
		svc.must(err)
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", home.String())
		if len(field) > 0 {
			r.Header.Set(field[0], field[1])
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		svc.must(err)
		resp.Body.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if resp.StatusCode != want {
			t.Fatalf("%s %s: status %d, want %d", method, path, resp.StatusCode, want)
		}
	}
	_, token, err := svc.Access.CreateToken(t.Context(), "backend")
	svc.must(err)
	id := "audited000000000000001"
	send("POST", "/v1/streams", svc.key, fmt.Sprintf(`{"name":"of a program","id":%q}`, id), http.StatusCreated)
	send("PATCH", "/v1/streams/"+id, svc.key, `{"name":"renamed"}`, http.StatusOK)
	send("POST", "/v1/streams/"+id+"/close", svc.key, "", http.StatusOK)
	send("POST", "/v1/streams/"+id+"/close", svc.key, "", http.StatusOK)
	send("DELETE", "/v1/streams/"+id, svc.key, "", http.StatusNoContent)
	for _, body := range []string{"", `{"first":"content"}`} {
		send("PUT", "/ds/durable", svc.key, body, http.StatusCreated)
		send("POST", "/ds/durable", svc.key, body, http.StatusNoContent, "Stream-Closed", "true")
		send("POST", "/ds/durable", svc.key, "", http.StatusNoContent, "Stream-Closed", "true")
		send("DELETE", "/ds/durable", svc.key, "", http.StatusNoContent)
	}
	send("POST", "/manage/v1/projects", token.Reveal(), `{"name":"made by a program"}`, http.StatusCreated)
	send("POST", "/manage/v1/keys", token.Reveal(), fmt.Sprintf(`{"project":%q}`, svc.Project), http.StatusCreated)
	var got []string
	for _, e := range dashboard.SearchAudit(svc.Dashboard, "") {
		if e.Program {
			got = append(got, e.What+" from "+e.From)
		}
	}
	slices.Sort(got)
	var want []string
	for _, what := range []string{"key created", "project created", "stream changed", "stream closed", "stream closed", "stream closed", "stream created", "stream created", "stream created", "stream deleted", "stream deleted", "stream deleted"} {
		want = append(want, what+" from 192.0.2.7")
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%v, want\n%v", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Programs that make very many changes cannot push the actions of people out of the audit log.
// Actions that get no entry of their own are counted.
func TestAuditOfPrograms(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	b := svc.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	note := func(what, detail string) {
		if record := svc.Dashboard.NoteProgram(what); record != nil {
			record(ctx, "key k", home, detail)
		}
	}
	about := func(text string) int { return len(dashboard.SearchAudit(svc.Dashboard, text)) }
	for range 60 {
		for range 100 {
			note("stream created", "s")
		}
		note("stream deleted", "important")
		svc.clock.advance(time.Hour)
		dashboard.Tick(svc.Dashboard, ctx)
	}
	if about("audited") != 1 {
		t.Error("programs pushed an action out of the audit log")
	}
	if n := about("stream created") + about("stream deleted"); n != dashboard.MaxAudit/2 {
		t.Errorf("%d entries are about programs, want %d", n, dashboard.MaxAudit/2)
	}
	if about("important") == 0 {
		t.Error("many created streams hide which stream was deleted")
	}
	list := dashboard.SearchAudit(svc.Dashboard, "more since")
	if len(list) == 0 || list[0].Who != "programs" || !strings.HasPrefix(list[0].Detail, "80 more since") {
		t.Errorf("the entries about counted actions are %v", list)
	}
	for range 30 {
		note("project created", "p")
	}
	svc.restart()
	if list := dashboard.SearchAudit(svc.Dashboard, "project created"); len(list) != 22 || !strings.HasPrefix(list[0].Detail, "10 more since") {
		t.Errorf("after a restart, %d entries, the newest %v; want 20 of the program, one for its other actions, and one of a person", len(list), list[0])
	}
}
