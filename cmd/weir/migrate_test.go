package main

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"weir/internal/admin"
)

// An interrupted migration says so, and does not blame the node that it was talking to.
func TestMigrateInterrupted(t *testing.T) {
	data := t.TempDir()
	l, err := admin.Listen(data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	node := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("{}\n"))
		w.(http.Flusher).Flush()
		interrupt()
		<-r.Context().Done()
	})}
	defer node.Close()
	go node.Serve(l)
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"migrate", t.TempDir(), "--data", data}, &out, &errs); code != exitFailed || !strings.HasSuffix(errs.String(), ": interrupted; run the command again\n") {
		t.Errorf("exits with %d: %s", code, &errs)
	}
}
