package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// If a subscription is ended between two writes, its writer sends nothing more. This does not
// depend on the write deadline, which the writer may have replaced since.
func TestWriteAfterEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rec := httptest.NewRecorder()
	w := writer{w: rec, control: http.NewResponseController(rec), timeout: time.Second, ended: ctx}
	if err := w.send(helloFrame(0, false), deletedFrame); err == nil || rec.Body.Len() > 0 {
		t.Errorf("send returned %v and wrote %q, want an error and no data", err, rec.Body)
	}
}
