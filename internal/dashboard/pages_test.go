package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	pathpkg "path"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/dashboard"
	"weir/internal/hub"
)

// A key is shown once, only to the session that created it, and never in a list. It has exactly the
// permissions and streams that were selected.
func TestKeys(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	other, err := svc.Access.CreateProject(t.Context(), "other")
	svc.must(err)
	elsewhere, err := svc.Hub.Create(t.Context(), hub.Spec{Project: other.ID, Name: "elsewhere", RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.JSON})
	svc.must(err)
	for _, c := range []struct {
		what  string
		pairs []string
	}{
		{"without a permission", []string{"project", string(svc.Project), "kind", "live"}},
		{"restricted to no stream", []string{"project", string(svc.Project), "kind", "live", "permission", "read", "confined", "1"}},
		{"without a kind", []string{"project", string(svc.Project), "permission", "read"}},
		{"unknown project", []string{"project", "nope", "kind", "live", "permission", "read"}},
		{"unknown permission", []string{"project", string(svc.Project), "kind", "live", "permission", "brew"}},
		{"stream of another project", []string{"project", string(svc.Project), "kind", "live", "permission", "read", "confined", "1", "stream", string(elsewhere.ID)}},
		{"nonexistent stream", []string{"project", string(svc.Project), "kind", "live", "permission", "read", "confined", "1", "stream", strings.Repeat("0", 22)}},
		{"malformed stream ID", []string{"project", string(svc.Project), "kind", "live", "permission", "read", "confined", "1", "stream", "x"}},
	} {
		if status, text, _ := b.post("/dashboard/keys", c.pairs...); status != http.StatusBadRequest || !strings.Contains(text, `role="alert"`) {
			t.Errorf("create key, %s: status %d, want 400 and an alert", c.what, status)
		}
	}
	status, _, header := b.post("/dashboard/keys", "project", string(svc.Project), "kind", "test", "name", "mine", "permission", "publish", "confined", "1", "stream", string(svc.stream))
	page := header.Get("Location")
	if status != http.StatusSeeOther {
		t.Fatalf("create key: status %d", status)
	}
	if other := svc.signedIn(); strings.Contains(other.see(page), "It is not shown again") {
		t.Error("another session sees the key")
	}
	text := b.see(page)
	key := keyPattern.FindString(text)
	if key == "" || !strings.Contains(text, "/v1/streams/"+string(svc.stream)+"/publish") || strings.Contains(text, "cursor=0") {
		t.Fatalf("the page of a new publish-only key lacks the key or the publish command, or has a subscribe command: %s", text)
	}
	if strings.Contains(b.see(page), key) || strings.Contains(b.see("/dashboard/keys"), key) || strings.Contains(b.see("/dashboard/audit"), key) {
		t.Error("the key is shown twice")
	}
	publish := "/v1/streams/" + string(svc.stream) + "/publish"
	if status, _ := svc.v1("POST", publish, key, `{"events":[1]}`); status != http.StatusAccepted {
		t.Errorf("publish: status %d, want 202", status)
	}
	if status, _ := svc.v1("GET", "/v1/streams", key, ""); status != http.StatusForbidden {
		t.Errorf("read without the permission: status %d, want 403", status)
	}
	if text := b.see("/dashboard/keys"); !regexp.MustCompile(`mine</td>(?s:.)*?class="right">2</td>`).MatchString(text) {
		t.Errorf("the key list does not show two requests: %s", text)
	}

	// Rotation: the new key has the permissions and streams of the old one.
	_, _, header = b.post(page+"/rotate", "name", "mine, next")
	fresh := keyPattern.FindString(b.see(header.Get("Location")))
	if status, _ := svc.v1("POST", publish, fresh, `{"events":[2]}`); status != http.StatusAccepted {
		t.Errorf("publish with the new key: status %d, want 202", status)
	}
	if status, _ := svc.v1("GET", "/v1/streams", fresh, ""); status != http.StatusForbidden {
		t.Errorf("read with the new key: status %d, want 403", status)
	}
	b.post(page + "/revoke")
	if status, _ := svc.v1("POST", publish, key, `{"events":[3]}`); status != http.StatusAccepted {
		t.Errorf("publish after a revoke without confirmation: status %d, want 202", status)
	}
	b.post(page+"/revoke", "sure", "1")
	status, id := svc.v1("POST", publish, key, `{"events":[4]}`)
	if status != http.StatusUnauthorized {
		t.Errorf("publish with a revoked key: status %d, want 401", status)
	}
	if text := b.see("/dashboard/requests?id=" + id); !strings.Contains(text, "key_revoked") || !strings.Contains(text, "POST /v1/streams/{id}/publish") {
		t.Errorf("the lookup does not find the refused request: %s", text)
	}
	if text := b.see("/dashboard/requests?id=" + key); strings.Contains(text, key) || !strings.Contains(text, "That is an API key") {
		t.Error("the page repeats a key that was typed into the wrong field")
	}
	if strings.Contains(svc.log(), key[12:30]) {
		t.Error("the log contains a key")
	}
}

func TestStreams(t *testing.T) {
	svc := startService(t, "--demo")
	b := svc.signedIn()
	for _, c := range []struct {
		status int
		pairs  []string
	}{
		{400, []string{"project", string(svc.Project), "mode", "json", "name", ""}},
		{400, []string{"project", string(access.DemoProject), "mode", "json", "name", "x"}},
		{400, []string{"project", string(svc.Project), "mode", "brew", "name", "x"}},
		{400, []string{"project", string(svc.Project), "mode", "json", "name", "x", "max_bytes", "1e9"}},
		{400, []string{"project", string(svc.Project), "mode", "json", "name", "x", "max_bytes", "lots"}},
		{400, []string{"project", string(svc.Project), "mode", "json", "name", "x", "id", "short"}},
		{409, []string{"project", string(svc.Project), "mode", "json", "name", "x", "id", string(svc.stream)}},
		{409, []string{"project", string(svc.Project), "mode", "json", "name", "x", "id", string(access.DemoStream)}},
		{422, []string{"project", string(svc.Project), "mode", "json", "name", "x", "retention_seconds", "59"}},
	} {
		if status, text, _ := b.post("/dashboard/streams", c.pairs...); status != c.status || !strings.Contains(text, `role="alert"`) {
			t.Errorf("create stream with %v: status %d, want %d and an alert", c.pairs, status, c.status)
		}
	}
	_, _, header := b.post("/dashboard/streams", "project", string(svc.Project), "mode", "raw", "name", "bytes", "max_bytes", "1048576", "retention_seconds", "60")
	page := header.Get("Location")
	if text := b.see(page); !strings.Contains(text, "raw stream in project test") {
		t.Errorf("the stream's page does not show its mode and project: %s", text)
	}
	status, text, _ := b.do("POST", page+"/publish", "\xff\x00", "text/plain")
	var ack weir.Ack
	if err := json.Unmarshal([]byte(text), &ack); err != nil || status != http.StatusOK || ack.Seq != 1 {
		t.Errorf("publish: status %d, body %s", status, text)
	}
	if status, _, _ := b.do("POST", page+"/publish", strings.Repeat("x", dashboard.MaxTestBatch+1), "text/plain"); status != http.StatusRequestEntityTooLarge {
		t.Errorf("publish a batch over the limit: status %d, want 413", status)
	}
	if status, _, _ := b.do("POST", "/dashboard/streams/"+string(svc.stream)+"/publish", "{", "text/plain"); status != http.StatusBadRequest {
		t.Errorf("publish malformed JSON: status %d, want 400", status)
	}
	var f struct {
		Cursor, Batches, Subscribers int
		Plots                        map[string][]*float64
	}
	if err := json.Unmarshal([]byte(b.see(page+"/figures")), &f); err != nil || f.Cursor != 1 || f.Batches != 1 || len(f.Plots["at"]) == 0 {
		t.Errorf("figures: %+v, %v", f, err)
	}
	if b.post(page+"/delete", "name", "other"); !strings.Contains(b.see(page+"/delete"), "Nothing was deleted") {
		t.Error("a wrong name deleted the stream")
	}
	b.post(page+"/delete", "name", "bytes")
	if status, _, _ := b.get(page); status != http.StatusNotFound {
		t.Errorf("page of a deleted stream: status %d, want 404", status)
	}
	for _, path := range []string{"/dashboard/streams/x", "/dashboard/keys/x", "/dashboard/none"} {
		if status, _, _ := b.get(path); status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", path, status)
		}
	}
	b.header = nil // without an Accept field the request looks like that of a script, which gets errors as JSON
	if _, text, _ := b.get("/dashboard/streams/x/events"); strings.TrimSpace(text) != `{"error":{"code":"stream_not_found","message":"stream not found"}}` {
		t.Errorf("events of a nonexistent stream: %s", text)
	}
}

// The list of streams can be searched, sorted and paged, and no page exceeds the size limit.
func TestManyStreams(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	for i := range 300 {
		_, err := svc.Hub.Create(ctx, hub.Spec{Project: svc.Project, Name: fmt.Sprintf("stream %03d", i), RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.JSON})
		svc.must(err)
	}
	dashboard.PastDay(svc.Dashboard, svc.clock.now())
	b := svc.signedIn()
	names := regexp.MustCompile(`<th scope="row"><a [^>]*>([^<]*)</a>`)
	list := func(query string) []string {
		var all []string
		for _, m := range names.FindAllStringSubmatch(b.see("/dashboard/streams?"+query), -1) {
			all = append(all, m[1])
		}
		return all
	}
	svc.v1("POST", "/v1/streams/"+string(svc.stream)+"/publish", svc.key, `{"events":["x"]}`)
	for query, want := range map[string]string{
		"sort=name&page=2":                "stream 048",
		"sort=name&q=stream+12":           "stream 120",
		"q=STREAM+299":                    "stream 299",
		"sort=bytes":                      "clicks",
		"sort=cursor":                     "clicks",
		"sort=active&project=nope":        "",
		"q=" + string(svc.stream)[:10]:    "clicks",
		"sort=name&page=1000000":          "stream 298", // shows the last page
		"page=-1&sort=nope&q=stream+0001": "",
	} {
		got := list(query)
		if want == "" && len(got) > 0 || want != "" && (len(got) == 0 || got[0] != want) {
			t.Errorf("%s lists %q, want %q first", query, got, want)
		}
	}
	weigh(t, b, "/dashboard", "/dashboard/streams", "/dashboard/streams/"+string(svc.stream), "/dashboard/keys/new", "/dashboard/keys", "/dashboard/audit")
	weigh(t, svc.browser(), "/dashboard/sign-in")
}

var loaded = regexp.MustCompile(`(?:src|href)="(/dashboard/assets/[^"]+)"|from ['"]\./([a-z/]+\.js)['"]`)

// weigh checks that each page, with everything it loads and its first figures, is at most 150 kB.
func weigh(t *testing.T, b *browser, paths ...string) {
	t.Helper()
	for _, path := range paths {
		seen := map[string]int{}
		var load func(path string)
		load = func(path string) {
			path, _, _ = strings.Cut(path, "?")
			if seen[path] > 0 {
				return
			}
			status, text, _ := b.get(path)
			if status != http.StatusOK {
				t.Errorf("%s: status %d", path, status)
			}
			seen[path] = len(text)
			for _, m := range loaded.FindAllStringSubmatch(text, -1) {
				if m[2] != "" {
					m[1] = pathpkg.Dir(path) + "/" + m[2]
				}
				load(m[1])
			}
		}
		load(path)
		switch _, text, _ := b.get(path); {
		case strings.Contains(text, "overview.js"):
			seen["figures"] = len(b.see("/dashboard/figures?span=day"))
		case strings.Contains(text, "stream.js"):
			seen["figures"] = len(b.see(path + "/figures"))
		}
		all := 0
		for _, n := range seen {
			all += n
		}
		t.Logf("%s and %d files: %d bytes", path, len(seen)-1, all)
		if all > 150_000 {
			t.Errorf("%s weighs %d bytes: %v", path, all, seen)
		}
	}
}

// A sample counts what happened since the previous sample. Samples survive a restart and are
// deleted after a day.
func TestFigures(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	publish := func() { svc.v1("POST", "/v1/streams/"+string(svc.stream)+"/publish", svc.key, `{"events":["x"]}`) }
	publish()
	svc.v1("GET", "/v1/streams/none", svc.key, "")
	svc.clock.advance(dashboard.CoarseEvery)
	dashboard.Tick(svc.Dashboard, ctx)
	sums := dashboard.Totals(svc.Dashboard, svc.clock.now(), time.Hour)
	if sums["requests"] != 2 || sums["published"] != 1 || sums["refused"] != 1 || sums["received"] != 16 {
		t.Errorf("totals: %v", sums)
	}
	publish() // in the current minute, whose sample is stored when the service stops
	svc.clock.advance(5 * time.Second)
	svc.Stop()
	svc.clock.advance(30 * time.Minute)
	svc.restart()
	if sums = dashboard.Totals(svc.Dashboard, svc.clock.now(), time.Hour); sums["requests"] != 3 {
		t.Errorf("after a restart: %v", sums)
	}
	if dashboard.KeyUse(svc.Dashboard)[svc.keyID] < 2 {
		t.Errorf("after a restart the key has %d requests, want at least 2", dashboard.KeyUse(svc.Dashboard)[svc.keyID])
	}
	b := svc.signedIn()
	for _, span := range []string{"hour", "day"} {
		var f struct{ Plots map[string][]*float64 }
		if err := json.Unmarshal([]byte(b.see("/dashboard/figures?span="+span)), &f); err != nil || len(f.Plots["at"]) == 0 || len(f.Plots["at"]) != len(f.Plots["requests"]) {
			t.Errorf("%s: %+v, %v", span, f, err)
		}
	}
	svc.clock.advance(26 * time.Hour)
	dashboard.Tick(svc.Dashboard, ctx)
	docs, err := svc.engine.List(ctx, dashboard.FiguresPrefix, "", 100)
	if err != nil || len(docs) > 1 {
		t.Errorf("%d hours are stored, want at most 1; error %v", len(docs), err)
	}
	var f struct{ Plots map[string][]*float64 }
	if svc.must(json.Unmarshal([]byte(svc.signedIn().see("/dashboard/figures?span=none")), &f)); f.Plots != nil {
		t.Error("span=none returns plots")
	}
	if len(dashboard.KeyUse(svc.Dashboard)) != 0 {
		t.Errorf("key requests older than a day still count: %v", dashboard.KeyUse(svc.Dashboard))
	}
}
