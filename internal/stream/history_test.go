package stream_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/stream"
)

// TestMain runs 10,000 random histories of 60 steps unless the command line says otherwise.
func TestMain(m *testing.M) {
	flag.Parse()
	want := map[string]string{"rapid.checks": "10000", "rapid.steps": "60"}
	flag.Visit(func(f *flag.Flag) { delete(want, f.Name) })
	for name, value := range want {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestHistories runs random histories of a stream and compares the state with a model that
// implements docs/decisions.md in the simplest possible way. It also checks the subscribers: each
// receives every batch once and in order, and a report of every loss.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		t.Repeat(map[string]func(*rapid.T){
			"":             h.compare,
			"publish":      h.publishNext,
			"publish key":  h.publishKey,
			"publish seq":  h.publishSeq,
			"publish next": h.publishInOrder,
			"fill":         h.fill,
			"clock":        h.moveClock,
			"due":          h.due,
			"close":        h.close,
			"hold":         h.hold,
			"release":      h.release,
			"resume":       h.resume,
			"evict":        h.evict,
			"trim":         h.trim,
			"restart":      h.restart,
			"subscribe":    h.subscribe,
			"read":         h.read,
			"reconnect":    h.reconnect,
		})
		h.readAll(t)
	})
}

// history is a random history in progress: the state under test, its log, and the model.
type history struct {
	rules stream.Rules
	now   weir.Time
	state *stream.State
	model *model
	log   log
	low   weir.Seq // the sequence below which the last trim removed the entries of the log
	held  held
	subs  []*subscriber
}

const created weir.Time = 1_000_000

func newHistory(t *rapid.T) *history {
	rules := stream.Rules{
		MaxBytes:  rapid.SampledFrom([]int64{10_000, 600, 300, 100}).Draw(t, "max bytes"),
		Retention: rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Second, 48 * time.Hour}).Draw(t, "retention"),
		GapGrace:  rapid.SampledFrom([]time.Duration{2 * time.Second, 30 * time.Second, 0}).Draw(t, "grace"),
		Keys:      rapid.SampledFrom([]int{1000, 2, 0}).Draw(t, "keys"),
	}
	return &history{
		rules: rules,
		now:   created,
		state: stream.New(rules, created),
		model: newModel(rules, created),
	}
}

func (h *history) publishNext(t *rapid.T) {
	h.publish(t, stream.Publish{Size: size(t), Ends: rapid.IntRange(0, 50).Draw(t, "ends") == 50})
}

func (h *history) publishKey(t *rapid.T) {
	h.publish(t, stream.Publish{Size: size(t), Key: rapid.SampledFrom([]string{"a", "b", "c", strings.Repeat("d", 100)}).Draw(t, "key")})
}

// publishSeq draws sequences just above the cursor, and occasionally at or beyond the limit of
// MaxAhead.
func (h *history) publishSeq(t *rapid.T) {
	c := h.model.cursor()
	seq := c + weir.Seq(rapid.IntRange(0, 6).Draw(t, "above"))
	switch rapid.IntRange(0, 40).Draw(t, "place") {
	case 40:
		seq = rapid.SampledFrom([]weir.Seq{c + 1025, c + 5000, weir.MaxSeq, weir.MaxSeq + 1}).Draw(t, "far")
	case 39:
		if c < 20 { // at most once per history, because the model is slow with large gaps
			seq = c + 1024
		}
	}
	h.publish(t, stream.Publish{Chosen: true, Seq: seq, Size: size(t), Contiguous: rapid.IntRange(0, 9).Draw(t, "next") == 0})
}

// publishInOrder draws a sequence near the cursor and publishes a batch under it with the option
// Contiguous, so the publish must be refused if it would open a gap (D38).
func (h *history) publishInOrder(t *rapid.T) {
	c, missing := h.model.cursor(), len(h.model.since)
	seq := c + weir.Seq(rapid.IntRange(0, 4).Draw(t, "above"))
	if rapid.Bool().Draw(t, "below") {
		seq = c - min(c, weir.Seq(rapid.IntRange(0, 6).Draw(t, "by")))
	}
	h.publish(t, stream.Publish{Chosen: true, Seq: seq, Size: size(t), Contiguous: true})
	if n := len(h.model.since); n > missing {
		t.Fatalf("publishing %d opened a gap: %d sequences are missing, %d were missing before", seq, n, missing)
	}
	if got := h.state.Cursor().Cursor; got > c+1 {
		t.Fatalf("publishing %d moved the cursor from %d to %d", seq, c, got)
	}
}

// fill draws sequences at or below the cursor, often a missing one.
func (h *history) fill(t *rapid.T) {
	c := h.model.cursor()
	seq := c - min(c, weir.Seq(rapid.IntRange(0, 12).Draw(t, "below")))
	if final := h.model.final(); rapid.Bool().Draw(t, "lowest") {
		seq = final + weir.Seq(rapid.IntRange(0, 3).Draw(t, "into"))
	}
	h.publish(t, stream.Publish{Chosen: true, Seq: seq, Size: size(t)})
}

func size(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{3, 0, 128, 129, 101, 300}).Draw(t, "size")
}

// publish decides twice. It first decides without a size, as a server does before it reads the
// body, and then with the size. If the second verdict is Stored, publish stores the batch.
func (h *history) publish(t *rapid.T, p stream.Publish) {
	outcome, seq, code := h.model.decide(p, h.now)
	early := p
	early.Size = -1
	if v := h.state.Decide(early, h.now); v.Outcome != outcome && code != weir.PayloadTooLarge {
		t.Fatalf("%+v before the body is read: got %+v, want outcome %d", p, v, outcome)
	}
	v := h.state.Decide(p, h.now)
	if v.Outcome != outcome {
		t.Fatalf("%+v: got %+v, want outcome %d, sequence %d, code %q", p, v, outcome, seq, code)
	}
	switch outcome {
	case stream.Refused:
		if v.Err.Code != code {
			t.Fatalf("%+v: got %v, want %s", p, v.Err, code)
		}
	case stream.Duplicate:
		if v.Header.Seq != seq {
			t.Fatalf("%+v: got a duplicate of %d, want %d", p, v.Header.Seq, seq)
		}
		if !p.Chosen && v.Header.Count != uint32(seq) {
			t.Fatalf("%+v: got a duplicate with %d events, want %d", p, v.Header.Count, seq)
		}
	case stream.Stored:
		if want := h.model.store(p, seq, h.now); v.Header != want {
			t.Fatalf("%+v: got %+v, want %+v", p, v.Header, want)
		}
		v.Header.Count = uint32(seq)
		h.log.append(t, v.Header)
		h.state.Apply(v.Header)
		for _, s := range h.subs {
			s.published(t, seq)
		}
	}
}

// moveClock moves the clock by durations close to the grace (the time in which a gap can still be
// filled), the retention and the lifetime of a key. Sometimes it moves the clock backwards.
func (h *history) moveClock(t *rapid.T) {
	const day = 24 * time.Hour
	g, r := h.rules.GapGrace, h.rules.Retention
	before := h.now
	defer func() {
		h.held.elapse(h.state, before, h.now)
		h.model.elapse(before, h.now)
	}()
	h.now = h.now.Add(rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Second, g / 2, g, g - time.Millisecond, r / 2, r - time.Millisecond, r,
		time.Minute, day / 2, day - time.Millisecond, day,
		-time.Millisecond, -time.Second, -time.Hour, -g, -r,
	}).Draw(t, "by"))
}

// hold starts a request for a sequence, often a missing one. Until release, the request counts as
// being received.
func (h *history) hold(t *rapid.T) {
	seq := h.model.final() + weir.Seq(rapid.IntRange(0, 4).Draw(t, "held"))
	h.held = append(h.held, seq)
	h.model.held = append(h.model.held, seq)
}

// release ends a request, whether its sequence was stored or not.
func (h *history) release(t *rapid.T) {
	if len(h.held) == 0 {
		return
	}
	seq := rapid.SampledFrom(h.held).Draw(t, "released")
	h.held.release(seq)
	h.model.release(seq)
}

// resume simulates that the store accepts writes again, after a time in which it refused them.
func (h *history) resume(*rapid.T) {
	h.state.Pause(0, stream.Afresh, h.now)
	h.model.restartGrace(h.now)
}

// close closes the stream, but only in one of five calls, because most histories would otherwise
// end early.
func (h *history) close(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "really") < 4 {
		return
	}
	v := stream.Closing(h.state, nil, h.now)
	marker := v.Header
	if (v.Outcome == stream.Stored) == h.model.ended {
		t.Fatalf("Closing returned %+v, closed before: %v", v, h.model.ended)
	}
	if v.Outcome == stream.Stored {
		h.log.append(t, marker)
		h.state.Apply(marker)
		h.model.end(marker.Seq, h.now)
	}
}

func (h *history) due(t *rapid.T) {
	first, last, some := h.model.due(h.now)
	held := h.held.lowest(h.state)
	marker, ok := h.state.Due(h.now, held)
	if ok != some {
		t.Fatalf("Due returned %v and marker %+v, want %v and a marker for %d..%d", ok, marker, some, first, last)
	}
	if next, waiting := h.state.NextDue(); waiting != (len(h.model.since) > 0) || waiting && (next <= h.now && h.state.Final() < held) != ok {
		t.Fatalf("Due returned %v at time %d, but NextDue returned %d, %v, with %d sequences missing", ok, h.now, next, waiting, len(h.model.since))
	}
	if !ok {
		return
	}
	want := stream.Header{Closed: true, First: first, Seq: last, Time: max(h.now, h.model.last)}
	if marker != want {
		t.Fatalf("Due returned marker %+v, want %+v", marker, want)
	}
	h.log.append(t, marker)
	h.state.Apply(marker)
	h.model.close(h.now)
}

func (h *history) evict(t *rapid.T) {
	want := h.model.evict(h.now)
	if got := h.state.Evict(h.now, h.log.headers); got != want {
		t.Fatalf("evicted %d batches, want %d", got, want)
	}
}

// trim makes the low mark durable, which is the sequence below which everything was evicted or
// closed. A restart then finds the note of this trim (its encoded checkpoint), and the log from the
// low mark on. An engine may still show older entries that it has not reclaimed yet.
func (h *history) trim(t *rapid.T) {
	h.low = h.state.Low()
	h.model.trim()
	reclaimed := h.low
	if rapid.Bool().Draw(t, "reclaimed later") {
		reclaimed = 0
	}
	h.log.trim(reclaimed, stream.Encoded(h.state))
}

// restart simulates a crash: it rebuilds the state from the log and the note of the last trim, and
// reconnects the subscribers.
func (h *history) restart(t *rapid.T) {
	state, err := stream.Restore(h.rules, created, h.log.note, h.log.all(), h.now)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	h.state = state
	h.model.restart(h.low, h.now)
	h.compare(t)
	for _, s := range h.subs {
		s.reconnect(h)
	}
}

// compare calls all methods that read the state, and compares their results with the model.
func (h *history) compare(t *rapid.T) {
	if err := h.state.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	c := weir.Cursor{Cursor: h.model.cursor(), UpdatedAt: h.model.updated()}
	if got := h.state.Cursor(); got != c {
		t.Fatalf("the cursor is %+v, want %+v", got, c)
	}
	if got, want := h.state.Bytes(), h.model.bytes(); got != want {
		t.Fatalf("Bytes is %d, want %d", got, want)
	}
	if got, want := stream.Charge(h.state), h.model.charge(); got != want {
		t.Fatalf("Charge is %d, want %d", got, want)
	}
	if got := stream.Ended(h.state); got != h.model.ended {
		t.Fatalf("Ended is %v, want %v", got, h.model.ended)
	}
	low := h.model.low()
	if got := h.state.Low(); got != low {
		t.Fatalf("Low is %d, want %d", got, low)
	}
	if got, want := h.state.Final(), h.model.final(); got != want {
		t.Fatalf("Final is %d, want %d", got, want)
	}
	for seq := weir.Seq(0); seq <= c.Cursor+2; seq++ {
		if got, want := h.state.Lookup(seq), h.model.lookup(seq, low); got != want {
			t.Fatalf("Lookup(%d) is %d, want %d", seq, got, want)
		}
	}
}
