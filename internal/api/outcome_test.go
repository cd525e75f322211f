package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// silent is an engine that cannot say whether it has stored an entry.
type silent struct{ engine.Engine }

type silentLog struct{ engine.Log }

func (e silent) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return silentLog{l}, err
}

func (silentLog) Append(context.Context, *engine.Entry) error { return engine.ErrUnavailable }

func (silentLog) Propose(_ *engine.Entry, done func(error)) { done(engine.ErrUnavailable) }

// If the batch of a failed publish may have been stored, the response says so. If sending the batch
// again could store it twice, the response says that too (D5). The same holds under /ds.
func TestUnknownOutcome(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Engine: silent{memory.New()}})
	id := string(s.NewStream(hub.Spec{}))
	for _, c := range []struct {
		path, key string
		twice     bool
	}{
		{"/v1/streams/" + id + "/publish", "", true},
		{"/v1/streams/" + id + "/publish", "k", false},
		{"/v1/streams/" + id + "/1", "", false},
		{"/ds/" + id, "", true},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+c.path, strings.NewReader(`{"events":[1]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Key)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "https://example.com")
		if c.key != "" {
			r.Header.Set("Idempotency-Key", c.key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		h := resp.Header
		if resp.StatusCode != 503 || h.Get("X-Svc-Outcome") != "unknown" || strings.Contains(string(b), "twice") != c.twice {
			t.Errorf("%s with key %q: got %d, x-svc-outcome %q, %s; want 503 and unknown", c.path, c.key, resp.StatusCode, h.Get("X-Svc-Outcome"), b)
		}
		if !strings.Contains(h.Get("Access-Control-Expose-Headers"), "x-svc-outcome") {
			t.Errorf("%s: scripts cannot read x-svc-outcome: %v", c.path, h)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
