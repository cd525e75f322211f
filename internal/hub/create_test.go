package hub

import (
	"errors"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
)

// CreateLater has the results of Create: it refuses an id that is taken, even one whose creation is
// still in flight, and a stream above the limit of the project. It replaces an expired stream.
func TestCreateLater(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{StreamsPerProject: 3})
		defer h.Close()
		type outcome struct {
			weir.Stream
			err error
		}
		begin := func(id weir.StreamID, ttl int64) chan outcome {
			done := make(chan outcome, 2)
			spec := Spec{ID: id, Project: "p", Name: "n", RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.JSON, TTLSeconds: ttl}
			h.CreateLater(spec, func(s weir.Stream, err error) { done <- outcome{s, err} })
			return done
		}
		refused := func(what string, o outcome, want weir.Code) {
			t.Helper()
			var known *weir.Error
			if !errors.As(o.err, &known) || known.Code != want {
				t.Errorf("%s: %v, want %s", what, o.err, want)
			}
		}
		a, again := begin("a", 0), begin("a", 0)
		first, second := <-a, <-again
		if first.err != nil {
			first, second = second, first // the order of the answers is not fixed if both are in flight
		}
		refused("a stream that is being created", second, weir.StreamNameTaken)
		if s, err := h.Stream("a"); err != nil {
			t.Error(err)
		} else if o, err := s.Object(ctx); err != nil || o != first.Stream {
			t.Errorf("the stream is %+v, %v; want %+v as CreateLater returned it", o, err, first.Stream)
		}
		refused("a stream that exists", <-begin("a", 0), weir.StreamNameTaken)
		generated, lives := begin("", 0), begin("b", 10)
		refused("a stream above the limit", <-begin("c", 0), weir.StreamLimitReached)
		if o := <-generated; o.err != nil || !weir.IsID(string(o.ID)) {
			t.Errorf("without an id: %q, %v", o.ID, o.err)
		}
		if o := <-lives; o.err != nil || o.TTLSeconds != 10 {
			t.Errorf("with a time to live: %+v", o)
		}
		old, err := h.Stream("b")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // the time to live
		if o := <-begin("b", 0); o.err != nil {
			t.Errorf("in place of an expired stream: %v", o.err)
		}
		if s, err := h.Stream("b"); err != nil || s == old {
			t.Errorf("the expired stream was not replaced: %v", err)
		}
		h.catalog.mu.Lock()
		defer h.catalog.mu.Unlock()
		if n := len(h.catalog.projects["p"].creating); n != 0 {
			t.Errorf("%d streams still count as being created", n)
		}
	})
}
