package loop

import (
	"net/http"
	"testing"
	"time"
)

// quiet is a parked response (see Parked) that has nothing to send.
type quiet struct{ continued, idle int }

func (q *quiet) Continue(b []byte, idle bool) ([]byte, bool, bool) {
	q.continued++
	if idle {
		q.idle++
	}
	return b, false, false
}

func (q *quiet) Times() (idle, accept time.Duration) { return 0, 0 }
func (q *quiet) Resume(http.ResponseWriter)          {}
func (q *quiet) Left(error)                          {}
func (q *quiet) Enter(interface {
	Wake()
	Cut()
}) {
}

// Even if more responses are always waiting in the list of woken responses, the loop removes those
// that it has continued.
func TestWokenDoesNotGrow(t *testing.T) {
	l := &loop{buf: make([]byte, 100)}
	response := &quiet{}
	c := &conn{l: l, parked: response}
	wake := func(n int) {
		for range n {
			l.woken = append(l.woken, c)
		}
	}
	wake(10 * wokenAtOnce)
	const rounds = 10_000
	for range rounds {
		wake(wokenAtOnce)
		l.handleWoken()
	}
	if response.continued != rounds*wokenAtOnce {
		t.Errorf("%d responses were continued, want %d", response.continued, rounds*wokenAtOnce)
	}
	if n := cap(l.woken); n > 100*wokenAtOnce {
		t.Errorf("the list of woken responses has room for %d elements, want far fewer", n)
	}
}

// Signs of life that are due at the same time are sent a few at a time, like the frames of a batch,
// so that they do not delay publishers.
func TestSignsOfLifeAreSpread(t *testing.T) {
	l := &loop{buf: make([]byte, 100), now: time.Now()}
	l.waits[forBeat].limit = time.Second
	response := &quiet{}
	const n = 3*wokenAtOnce + 1
	for range n {
		l.waits[forBeat].add(&conn{l: l, parked: response}, l.now)
	}
	l.now = l.now.Add(time.Minute)
	for sent := wokenAtOnce; ; sent += wokenAtOnce {
		l.expire()
		l.handleWoken()
		if sent = min(sent, n); response.idle != sent {
			t.Fatalf("%d signs of life were sent, want %d", response.idle, sent)
		}
		if sent == n {
			break
		}
	}
	l.expire()
	l.handleWoken()
	if response.continued != n {
		t.Errorf("%d responses were continued, want %d", response.continued, n)
	}
}
