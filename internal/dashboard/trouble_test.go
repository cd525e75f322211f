package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/dashboard"
)

// Every page shows what is wrong, why, and what to do about it. The pages that update themselves
// also update these messages.
func TestTrouble(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	pages := []string{
		"/dashboard", "/dashboard/streams", "/dashboard/streams/new", "/dashboard/streams/" + string(svc.stream), "/dashboard/streams/" + string(svc.stream) + "/delete",
		"/dashboard/projects", "/dashboard/keys", "/dashboard/keys/new", "/dashboard/keys/" + svc.keyID, "/dashboard/requests", "/dashboard/audit", "/dashboard/account",
	}
	figures := []string{"/dashboard/figures?span=none", "/dashboard/streams/" + string(svc.stream) + "/figures", "/dashboard/keys/" + svc.keyID + "/figures"}
	everywhere := func(want bool, texts ...string) {
		t.Helper()
		for _, page := range append(pages, figures...) {
			shown := b.see(page)
			for _, text := range texts {
				if strings.Contains(shown, text) != want {
					t.Errorf("%s: shows %q: %v, want %v", page, text, !want, want)
				}
			}
		}
	}
	dashboard.SetStore(svc.Dashboard, dashboard.Store{Free: 11 << 30, Size: 100 << 30})
	everywhere(false, "nearly full", "notice bad", "remedy")
	dashboard.SetStore(svc.Dashboard, dashboard.Store{Free: 51 << 30, Size: 1000 << 30})
	everywhere(false, "nearly full")

	dashboard.SetStore(svc.Dashboard, dashboard.Store{Free: 9 << 30, Size: 100 << 30})
	everywhere(true, "The disk is nearly full.", "9.0 GiB of 100 GiB are free", "use a larger disk")
	if text := b.see("/dashboard"); !strings.Contains(text, fmt.Sprintf(`low="%d" high="%d" optimum="0"`, int64(80)<<30, int64(90)<<30)) {
		t.Errorf("the meter of the disk has no thresholds: %s", text)
	}

	svc.Dashboard.Troubles = func() []dashboard.Trouble {
		return []dashboard.Trouble{{Kind: dashboard.TroubleFull, Bad: true, State: "It is <full>.", Reason: "Because.", Remedy: "Do this."}}
	}
	everywhere(true, "Because.", "Do this.")
	if status, text, _ := b.get("/dashboard/none"); status != http.StatusNotFound || !strings.Contains(text, "Do this.") {
		t.Errorf("the page of an error, with status %d, does not show the trouble: %s", status, text)
	}
	if _, text, _ := svc.browser().get("/dashboard/none"); strings.Contains(text, "Do this.") {
		t.Error("the page of an error shows the trouble to strangers")
	}
	everywhere(false, "nearly full", "<full>")
	if text := b.see("/dashboard"); strings.Contains(text, "Not enough history") || !strings.Contains(text, "The store is full.") {
		t.Error("the overview forecasts when a full disk will be full")
	}
	if text := b.see("/dashboard"); !strings.Contains(text, `low="1" high="1" optimum="0"`) || !strings.Contains(text, `class="state bad">full</span>`) {
		t.Errorf("the meter of a full store is not red, or its state is not named: %s", text)
	}
	if text := svc.browser().see("/dashboard/sign-in"); strings.Contains(text, "Because.") {
		t.Error("the sign-in page shows the trouble to strangers")
	}

	svc.Dashboard.Troubles = func() []dashboard.Trouble { return nil }
	dashboard.SetStore(svc.Dashboard, dashboard.Store{Free: 50 << 30, Size: 100 << 30, Scrub: &dashboard.Scrub{Damaged: []string{"batch 7"}}})
	everywhere(true, "Stored data is damaged.")
}

// A plot covers its whole time span, and has nothing where nothing was measured.
func TestPlotsShowOnlyWhatIsKnown(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	svc.clock.advance(dashboard.CoarseEvery)
	dashboard.Tick(svc.Dashboard, t.Context())
	svc.v1("POST", "/v1/streams/"+string(svc.stream)+"/publish", svc.key, `{"events":[1]}`)
	svc.clock.advance(dashboard.CoarseEvery)
	dashboard.Tick(svc.Dashboard, t.Context())
	var f struct{ Plots map[string][]any }
	if err := json.Unmarshal([]byte(b.see("/dashboard/figures?span=day")), &f); err != nil {
		t.Fatal(err)
	}
	if r := f.Plots["range"]; len(r) != 2 || r[1].(float64)-r[0].(float64) != (24*time.Hour).Seconds() {
		t.Errorf("the plots cover %v, want a day", r)
	}
	if err := json.Unmarshal([]byte(b.see("/dashboard/figures?span=hour")), &f); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"publish_median", "publish_slow"} {
		values := f.Plots[name]
		if n := len(values); n < 2 || values[0] != nil || values[n-1] == nil || values[n-1].(float64) <= 0 {
			t.Errorf("%s is %v, want nothing before the publish, and then its duration", name, values)
		}
	}
	for _, v := range f.Plots["delay_median"] {
		if v != nil {
			t.Errorf("the plot shows the delay of a delivery that did not happen: %v", v)
		}
	}
}

// The audit log lists the streams that programs create and delete. Each entry has links to the key,
// stream or project that it is about.
func TestAuditLinks(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	id := string(weir.NewStreamID())
	if status, _ := svc.v1("POST", "/v1/streams", svc.key, fmt.Sprintf(`{"name":"<made>","id":%q}`, id)); status != http.StatusCreated {
		t.Fatalf("create: %d", status)
	}
	by := fmt.Sprintf(`key <a href="/dashboard/keys/%s">%[1]s</a>`, svc.keyID)
	if text := b.see("/dashboard/audit"); !strings.Contains(text, by) || !strings.Contains(text, fmt.Sprintf(`&lt;made&gt; <a href="/dashboard/streams/%s">%[1]s</a>`, id)) {
		t.Errorf("the audit log lacks the created stream, or its links: %s", text)
	}
	if status, _ := svc.v1("DELETE", "/v1/streams/"+id, svc.key, ""); status != http.StatusNoContent {
		t.Fatalf("delete: %d", status)
	}
	if text := b.see("/dashboard/audit"); !strings.Contains(text, "stream deleted") || strings.Contains(text, "/dashboard/streams/"+id) {
		t.Errorf("the audit log lacks the deleted stream, or links to it: %s", text)
	}
	b.post("/dashboard/projects", "name", "audited")
	if text := b.see("/dashboard/audit"); !strings.Contains(text, `<a href="/dashboard/projects">audited</a>`) {
		t.Errorf("the entry about a project has no link: %s", text)
	}
}
