package dashboard_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"weir/internal/dashboard"
)

// The request log shows why a request was refused, and its key, stream and address. It can be
// filtered by status, key, stream, route and time.
func TestRequestLog(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	path := "/v1/streams/" + string(svc.stream)
	_, published := svc.v1("POST", path+"/publish", svc.key, `{"events":[1]}`)
	_, refused := svc.v1("POST", path+"/publish", svc.key, `{"events":[`)
	_, unknown := svc.v1("GET", "/v1/streams", "svc_live_"+strings.Repeat("0", 32), "")
	ids := map[string]string{"published": published, "refused": refused, "unknown": unknown}
	for _, c := range []struct{ query, want string }{
		{"", "published refused unknown"}, {"?status=2", "published"}, {"?status=4", "refused unknown"}, {"?status=401", "unknown"}, {"?status=400", "refused"},
		{"?status=5", ""}, {"?status=slow", ""}, {"?key=" + svc.keyID, "published refused"}, {"?stream=" + string(svc.stream), "published refused"},
		{"?route=/v1/streams", "unknown"}, {"?span=5m&status=2", "published"}, {"?before=2020-01-01T00:00:00Z", ""},
	} {
		text := b.see("/dashboard/requests" + c.query)
		for name, id := range ids {
			if strings.Contains(text, id) != strings.Contains(c.want, name) {
				t.Errorf("requests%s shows the %s request: %t, want %t", c.query, name, strings.Contains(text, id), strings.Contains(c.want, name))
			}
		}
	}
	text := b.see("/dashboard/requests?status=400")
	for _, want := range []string{"invalid body", "127.0.0.1", "clicks", `href="/dashboard/keys/` + svc.keyID} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not show %q: %s", want, text)
		}
	}
	var live struct{ Parts map[string]string }
	svc.must(json.Unmarshal([]byte(b.see("/dashboard/requests/log?status=400")), &live))
	for _, part := range dashboard.RequestParts {
		if !strings.Contains(text, `data-part="`+part+`"`) || !strings.Contains(live.Parts[part], refused) {
			t.Errorf("the part %s is %q", part, live.Parts[part])
		}
	}
	_, hinted := svc.v1("POST", "/v1/streams", svc.key, `{"name":"a","retention<b>\u202e":60}`)
	for _, query := range []string{"id=" + hinted, "status=hint"} {
		if text := b.see("/dashboard/requests?" + query); !strings.Contains(text, "nknown member &#34;retention&lt;b&gt;\\u202e&#34;: did you mean retention_seconds?") || query == "status=hint" && strings.Contains(text, refused) {
			t.Errorf("requests?%s does not show the hint, or shows other requests: %s", query, text)
		}
	}
	for range 51 {
		svc.v1("GET", "/v1/health", svc.key, "")
	}
	if text := b.see("/dashboard/requests?route=/v1/health"); strings.Count(text, "<td data-label=\"Request ID\"") != 50 || !strings.Contains(text, "Older requests") {
		t.Errorf("the first page: %s", text)
	}
	for _, query := range []string{"status=x", "status=600", "before=x", "key=" + svc.key} {
		status, text, _ := b.get("/dashboard/requests?" + query)
		if status != http.StatusBadRequest || strings.Contains(text, svc.key) {
			t.Errorf("requests?%s: status %d, and the page shows the key: %t; want 400 and false", query, status, strings.Contains(text, svc.key))
		}
	}
}
