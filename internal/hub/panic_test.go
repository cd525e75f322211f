package hub

import (
	"context"
	"errors"
	"strings"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// trap is an error of an engine. Comparing it with another error panics.
type trap struct{}

func (trap) Error() string { return "trap" }
func (trap) Is(error) bool { panic("trap") }

// trapEngine is an engine whose appends fail with a trap.
type trapEngine struct{ engine.Engine }

type trapLog struct{ engine.Log }

func (e trapEngine) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return trapLog{l}, err
}

func (l trapLog) Propose(_ *engine.Entry, done func(error)) { done(trap{}) }

// settling is an Outcome with a goroutine of its own, as that of an event loop is.
type settling struct {
	inbox
	finishers chan interface{ Finish() }
}

func (s settling) Settle(f interface{ Finish() }) { s.finishers <- f }

// If a publish panics while its outcome is computed, the outcome is an error. The stream is not in
// use afterwards, and holds no sequence open.
func TestPanicOfAPublish(t *testing.T) {
	h := open(t, trapEngine{memory.New()}, Options{})
	defer h.Close()
	s := made(t, h, nil)
	f, err := s.acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.release()
	p := at(1, "x")
	if body, err := s.Foresee(p); !body || err != nil {
		t.Fatalf("Foresee returned %v, %v", body, err)
	}
	if f.way.holds.none() {
		t.Fatal("the stream does not hold the sequence")
	}
	to := settling{make(inbox, 1), make(chan interface{ Finish() }, 1)}
	s.Propose(p, to)
	(<-to.finishers).Finish()
	r := <-to.inbox
	if caught, ok := errors.AsType[*Panic](r.err); !ok || caught.Value != "trap" || r.ack != (weir.Ack{}) {
		t.Errorf("got %+v, %v; want the panic", r.ack, r.err)
	}
	if p.Release(); f.users != 0 || !f.way.holds.none() {
		t.Errorf("the stream has %d users, and holds the sequence: %v", f.users, !f.way.holds.none())
	}
}

// If a publish of Copy panics, the error says where.
func TestPanicOfACopy(t *testing.T) {
	h := open(t, trapEngine{memory.New()}, Options{})
	defer h.Close()
	err := Copy(ctx, made(t, h, nil), []weir.Batch{{Seq: 1, Events: 1, Payload: []byte("x")}})
	if err == nil || !strings.Contains(err.Error(), "hub.trap.Is") {
		t.Errorf("Copy returned %v, want the stack of the panic", err)
	}
}
