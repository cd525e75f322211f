package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	"weir"
	"weir/internal/dashboard"
	"weir/internal/hub"
)

// A stream whose only batch has sequence 0 is not shown as empty, although its cursor is 0.
func TestOnlySequenceZero(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	page, list := "/dashboard/streams/"+string(svc.stream), "/dashboard/streams?project="+string(svc.Project)
	if text := b.see(page); !strings.Contains(text, "nothing published yet") || !strings.Contains(b.see(list), ">never<") {
		t.Errorf("before the first publish: %s", text)
	}
	if status, _ := svc.v1("POST", "/v1/streams/"+string(svc.stream)+"/0", svc.key, `{"events":["x"]}`); status != http.StatusAccepted {
		t.Fatalf("publish: status %d, want 202", status)
	}
	if text := b.see(page); strings.Contains(text, "nothing published yet") || strings.Contains(b.see(list), ">never<") {
		t.Errorf("after publishing sequence 0: %s", text)
	}
}

// The figures that a stream's page polls include every part of the page that can change.
func TestStreamParts(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	page := "/dashboard/streams/" + string(svc.stream)
	parts := func() map[string]string {
		t.Helper()
		var f struct{ Parts map[string]string }
		svc.must(json.Unmarshal([]byte(b.see(page+"/figures")), &f))
		return f.Parts
	}
	before := parts()
	if !strings.Contains(before["updated"], "nothing published yet") || before["gap-line"] != "no open gaps" || before["gaps"] != "" {
		t.Errorf("parts before the first publish: %q", before)
	}
	for _, seq := range []int{1, 4} {
		svc.v1("POST", fmt.Sprintf("/v1/streams/%s/%d", svc.stream, seq), svc.key, `{"events":["x"]}`)
	}
	after := parts()
	if !strings.Contains(after["updated"], "<time") || !strings.Contains(after["object"], "&#34;cursor&#34;: 4") || !strings.Contains(after["gaps"], `>2</td><td data-label="To">3</td>`) {
		t.Errorf("parts after publishing 1 and 4: %q", after)
	}
	for _, name := range dashboard.StreamParts {
		if !strings.Contains(b.see(page), `data-part="`+name+`"`) {
			t.Errorf("the stream's page has no element for the part %s", name)
		}
	}
	for _, name := range dashboard.OverviewParts {
		if !strings.Contains(b.see("/dashboard"), `data-part="`+name+`"`) {
			t.Errorf("the overview has no element for the part %s", name)
		}
	}
}

// Deleting a stream requires its name, typed as the page shows it, or its ID.
func TestDeleteByNameOrID(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	for _, c := range []struct{ name, typed string }{
		{"two\nlines", "two lines"}, {"wide   gap", "wide gap"}, {" around ", "around"}, {"\t", "id"}, {"plain", "id"}, {"plain", "plain"},
	} {
		o, err := svc.Hub.Create(context.Background(), hub.Spec{Project: svc.Project, Name: c.name, RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.JSON})
		svc.must(err)
		page := "/dashboard/streams/" + string(o.ID)
		if b.post(page+"/delete", "name", "other"); !strings.Contains(b.see(page+"/delete"), "Nothing was deleted") {
			t.Errorf("%q: a wrong name deleted the stream", c.name)
		}
		if c.typed == "id" {
			c.typed = string(o.ID)
		}
		b.post(page+"/delete", "name", c.typed)
		if status, _, _ := b.get(page); status != http.StatusNotFound {
			t.Errorf("typing %q does not delete the stream %q: status %d", c.typed, c.name, status)
		}
	}
}

// The form for a new stream takes limits with units, as the command line does, and its errors name
// the fields as the form does.
func TestStreamForm(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	for _, c := range []struct{ name, value, want string }{
		{"retention_seconds", "59", "Retention must be from 1m to 30d."}, {"retention_seconds", "31d", "Retention must be from 1m to 30d."},
		{"retention_seconds", "soon", "Retention must be a time such as"}, {"retention_seconds", "1.5", "Retention must be a time such as"},
		{"max_bytes", "5GiB", "Size limit must be from 1MiB to 4GiB."}, {"max_bytes", "lots", "Size limit must be a number of bytes"},
		{"id", "short", "ID must be a string of"}, {"name", strings.Repeat("x", 129), "Name must be a string of 1 to 128 characters"},
	} {
		pairs := []string{"project", string(svc.Project), "mode", "json", c.name, c.value}
		if c.name != "name" {
			pairs = append(pairs, "name", "x")
		}
		if _, text, _ := b.post("/dashboard/streams", pairs...); !strings.Contains(text, `role="alert">`+c.want) {
			t.Errorf("create stream with %s %s: the page does not say %q: %s", c.name, c.value, c.want, text)
		}
	}
	for _, c := range []struct {
		retention, size string
		seconds, bytes  int64
	}{{"7d", "4GiB", 7 * 86400, 4 << 30}, {"90m", "1048576", 5400, 1 << 20}, {"3600", "2 MiB", 3600, 2 << 20}, {"", "", weir.DefaultRetention, weir.DefaultMaxBytes}} {
		_, _, header := b.post("/dashboard/streams", "project", string(svc.Project), "mode", "json", "name", "limits", "retention_seconds", c.retention, "max_bytes", c.size)
		s, err := svc.Hub.Stream(weir.StreamID(path.Base(header.Get("Location"))))
		svc.must(err)
		if spec := s.Spec(); spec.RetentionSeconds != c.seconds || spec.MaxBytes != c.bytes {
			t.Errorf("%s and %s give %d s and %d bytes, want %d and %d", c.retention, c.size, spec.RetentionSeconds, spec.MaxBytes, c.seconds, c.bytes)
		}
		svc.must(s.Delete(t.Context()))
	}
}
