package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/service/servicetest"
)

// trap is an error of an engine. Comparing it with another error panics.
type trap struct{}

func (trap) Error() string { return "trap" }
func (trap) Is(error) bool { panic("trap") }

// trapEngine is an engine. An append fails with a trap if its payload says so.
type trapEngine struct{ engine.Engine }

type trapLog struct{ engine.Log }

func (e trapEngine) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return trapLog{l}, err
}

func (l trapLog) Propose(e *engine.Entry, done func(error)) {
	if strings.Contains(string(e.Payload), "trap") {
		done(trap{})
		return
	}
	l.Log.Propose(e, done)
}

func (l trapLog) Append(ctx context.Context, e *engine.Entry) error {
	if strings.Contains(string(e.Payload), "trap") {
		return trap{}
	}
	return l.Log.Append(ctx, e)
}

// A publish that panics while its outcome is computed gets 500, and the connection and the stream
// can be used again.
func TestPanicOfAPublish(t *testing.T) {
	svc := startServiceWith(t, servicetest.Options{Engine: trapEngine{memory.New()}})
	svc.publish("id", "1")
	for _, c := range []struct {
		body   string
		status int
	}{{`{"events":["trap"]}`, http.StatusInternalServerError}, {`{"events":["x"]}`, http.StatusAccepted}} {
		resp := svc.do("HTTP/1.1", svc.request(http.MethodPost, "/v1/streams/{id}/2", []string{jsonBody}, c.body))
		if resp.status != c.status {
			t.Errorf("%s: got status %d, want %d", c.body, resp.status, c.status)
		}
	}
	if n := svc.API.Stats().Panics; n != 1 {
		t.Errorf("%d panics were counted, want 1", n)
	}
}
