package durable_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/service/servicetest"
)

// scanCounter is an engine that counts how often its logs are scanned.
type scanCounter struct {
	engine.Engine
	scans atomic.Int64
}

type countedLog struct {
	engine.Log
	e *scanCounter
}

func (e *scanCounter) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &countedLog{l, e}, err
}

func (l *countedLog) Scan(ctx context.Context, start weir.Seq, run int, visit func(*engine.Entry) bool) error {
	l.e.scans.Add(1)
	return l.Log.Scan(ctx, start, run, visit)
}

// Readers that are up to date share what one of them reads from the log. Each of them gets everything
// once and in order, and so does a reader that begins at the start of the stream meanwhile.
func TestReadersShareFrames(t *testing.T) {
	const readers, messages = 10, 20
	e := &scanCounter{Engine: memory.New()}
	s := servicetest.Start(t, servicetest.Options{Engine: e})
	url, text := s.URL()+"/ds/shared", []string{"Content-Type", "text/plain"}
	send(t, "PUT", url, s.Key, "first", text...).want(t, 201, "")
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, readers)
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	follow := func() {
		r, err := http.NewRequestWithContext(ctx, "GET", url+"?offset=-1&live=sse", nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+s.Key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		all := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			switch {
			case ok && strings.Contains(data, `"upToDate":true`):
				got <- all
			case ok && data[0] != '{':
				all += data
			}
		}
	}
	for range readers {
		done.Go(follow)
	}
	want := "first"
	for range readers {
		if all := <-got; all != want {
			t.Fatalf("a reader got %s, want %s", all, want)
		}
	}
	before := e.scans.Load()
	for i := range messages {
		message := fmt.Sprintf(";%d", i)
		want += message
		send(t, "POST", url, s.Key, message, text...).want(t, 204, "")
		for range readers {
			if all := <-got; all != want {
				t.Fatalf("a reader got %s, want %s", all, want)
			}
		}
	}
	if n := e.scans.Load() - before; n > messages*2 {
		t.Errorf("%d readers of %d messages scanned the log %d times", readers, messages, n)
	}
	done.Go(follow)
	if all := <-got; all != want {
		t.Errorf("a reader that begins later got %s, want %s", all, want)
	}
}
