package loop

import (
	"log/slog"
	"net/http"
	"testing"
	"time"
)

// finish is a finisher.
type finish func()

func (f finish) Finish() { f() }

// A loop handles every message, also one that arrives in the moment in which the loop goes to sleep.
func TestEveryMessageWakesTheLoop(t *testing.T) {
	ls, err := New(Options{Handler: http.NotFoundHandler(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	handled := make(chan struct{}, 1)
	for n := range 50_000 {
		ls.all[0].post(message{exchange: &exchange{c: &conn{fd: -1}, finisher: finish(func() { handled <- struct{}{} })}})
		select {
		case <-handled:
		case <-late.C:
			t.Fatalf("message %d was not handled within two minutes", n)
		}
	}
	ls.Stop()
}
