package dashboard_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"weir/internal/dashboard"
)

// The page of a stream lists its subscribers. The operator can end a subscription there, which is
// audited. A request from another site cannot end it.
func TestSubscribers(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	page := "/dashboard/streams/" + string(svc.stream)
	if text := b.see(page); !strings.Contains(text, "No client is subscribed") {
		t.Errorf("without subscribers: %s", text)
	}
	subscribe := func() *http.Response {
		r, err := http.NewRequest("GET", svc.HTTP+"/v1/streams/"+string(svc.stream)+"?cursor=0", nil)
		svc.must(err)
		r.Header.Set("Authorization", "Bearer "+svc.key)
		r.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultTransport.RoundTrip(r)
		svc.must(err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	first, second := subscribe(), subscribe()
	ids := []string{first.Header.Get("X-Request-Id"), second.Header.Get("X-Request-Id")}
	text := b.see(page)
	for _, want := range append(ids, "/dashboard/keys/"+svc.keyID, ">127.0.0.1<") {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %s: %s", want, text)
		}
	}
	end := page + "/subscribers/" + ids[0]
	b.header.Set("Origin", "https://elsewhere.example")
	if status, _, _ := b.post(end); status != http.StatusForbidden {
		t.Errorf("end a subscription from another site: status %d, want 403", status)
	}
	b.header.Del("Origin")
	if list, _ := svc.API.SubscribersOf(svc.stream, 10); len(list) != 2 {
		t.Errorf("%d subscribers after a refused request, want 2", len(list))
	}
	b.post(end)
	if _, err := io.ReadAll(first.Body); err == nil {
		t.Error("the body of the ended subscription could be read without an error")
	}
	if text := b.see(page); !strings.Contains(text, "was ended") {
		t.Errorf("the page does not say that the subscription was ended: %s", text)
	}
	if b.post(end); !strings.Contains(b.see(page), "already ended") {
		t.Error("a subscription can be ended twice")
	}
	entries := dashboard.SearchAudit(svc.Dashboard, "subscription ended")
	if len(entries) != 1 || !strings.Contains(entries[0].Detail, svc.keyID) || !strings.Contains(entries[0].Detail, string(svc.stream)) {
		t.Errorf("the audit log has %+v, want one entry with the key and the stream", entries)
	}
	if !regexp.MustCompile(ids[1]).MatchString(b.see(page)) || strings.Contains(b.see(page), ids[0]) {
		t.Error("the page does not show exactly the other subscriber")
	}
	if n := svc.API.Stats().Ended["operator"]; n != 1 {
		t.Errorf("%d subscriptions were counted as ended by the operator, want 1", n)
	}
}
