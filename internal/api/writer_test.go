package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A subscription that is ended between two writes sends nothing more, whichever deadline was set
// last.
func TestWriteAfterEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rec := httptest.NewRecorder()
	w := writer{w: rec, control: http.NewResponseController(rec), timeout: time.Second, ended: ctx}
	if err := w.send(helloFrame(0, false), endFrame); err == nil || rec.Body.Len() > 0 {
		t.Errorf("send = %v, and %q was written", err, rec.Body)
	}
}
