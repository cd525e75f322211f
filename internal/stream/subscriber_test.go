package stream_test

import (
	"slices"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/stream"
)

// subscriber is a client that follows a stream across reconnects and records what it receives.
type subscriber struct {
	from  stream.From
	start weir.Seq // the first sequence that it may expect
	next  weir.Seq
	got   []weir.Seq
	lost  [][2]weir.Seq // ranges reported as evicted
	seen  bool          // it received an id
	id    weir.Seq      // the last one; a reconnect resumes above it
}

func (h *history) subscribe(t *rapid.T) {
	c := h.model.cursor()
	after := stream.After(c + 3 - min(c+3, weir.Seq(rapid.IntRange(0, 9).Draw(t, "after"))))
	s := &subscriber{from: []stream.From{stream.Oldest, stream.Head, after}[rapid.IntRange(0, 2).Draw(t, "from")]}
	want := map[stream.From]weir.Seq{stream.Head: c + 1, stream.Oldest: h.model.low()}
	if len(h.model.stored) == 0 {
		want[stream.Head] = 0 // D15: every batch, a first one under 0 included
	}
	s.begin(h)
	if seq, ok := want[s.from]; ok && s.start != seq {
		t.Fatalf("a subscription from %+v starts at %d, want %d", s.from, s.start, seq)
	}
	h.subs = append(h.subs, s)
}

// begin starts a subscription. The first frame has the id of the position below the first sequence
// that the subscription wants, if there is one (D16).
func (s *subscriber) begin(h *history) {
	s.next = h.state.Resolve(s.from)
	s.start = s.next
	if s.next > 0 {
		s.seen, s.id = true, s.next-1
	}
}

// reconnect resumes above the last id. A subscriber that saw no id starts over.
func (s *subscriber) reconnect(h *history) {
	if !s.seen {
		s.begin(h)
		return
	}
	s.next = h.state.Resolve(stream.After(s.id))
}

func (h *history) reconnect(t *rapid.T) {
	if s := h.pick(t); s != nil {
		s.reconnect(h)
	}
}

func (h *history) read(t *rapid.T) {
	if s := h.pick(t); s != nil {
		s.step(t, h)
	}
}

func (h *history) pick(t *rapid.T) *subscriber {
	if len(h.subs) == 0 {
		return nil
	}
	return h.subs[rapid.IntRange(0, len(h.subs)-1).Draw(t, "subscriber")]
}

// step takes one step and compares it with the model.
func (s *subscriber) step(t *rapid.T, h *history) stream.StepKind {
	step := h.state.Next(s.next)
	wanted := s.next
	if h.model.closed[0] {
		wanted = max(wanted, 1) // a closed 0 is not reported as a gap
	}
	low, end := h.model.low(), h.model.settled(wanted)
	var want stream.Step
	switch {
	case wanted < low:
		want = stream.Step{Kind: stream.Gap, First: wanted, Last: low - 1}
	case wanted < end:
		want = stream.Step{Kind: stream.Read, First: wanted, Last: end - 1}
	}
	if step != want {
		t.Fatalf("a subscriber at %d gets %+v, want %+v", s.next, step, want)
	}
	switch step.Kind {
	case stream.Gap:
		if !h.model.evicted[step.Last] {
			t.Fatalf("a subscriber gets a gap %d..%d, but %d was not evicted", step.First, step.Last, step.Last)
		}
		s.lost = append(s.lost, [2]weir.Seq{step.First, step.Last})
		s.next, s.seen, s.id = step.Last+1, true, step.Last
	case stream.Read:
		for _, seq := range h.log.batches(step.First, step.Last) {
			if s.seen && seq <= s.id {
				t.Fatalf("a subscriber gets %d after %d", seq, s.id)
			}
			s.got = append(s.got, seq)
			s.seen, s.id = true, seq
		}
		s.next = step.Last + 1
	}
	s.check(t, h)
	return step.Kind
}

// check verifies D4 and D16: every batch below a subscriber's position was either sent to it or
// reported as evicted.
func (s *subscriber) check(t *rapid.T, h *history) {
	for seq := range h.model.stored {
		if seq < s.start || seq >= s.next {
			continue
		}
		if got, lost := slices.Contains(s.got, seq), s.told(seq); got == lost {
			t.Fatalf("a subscriber that started at %d is at %d: batch %d was sent: %v, reported as evicted: %v", s.start, s.next, seq, got, lost)
		}
	}
}

// published checks that no batch is stored below a subscriber's position, where it would never be
// sent.
func (s *subscriber) published(t *rapid.T, seq weir.Seq) {
	if seq >= s.start && seq < s.next && !s.told(seq) {
		t.Fatalf("batch %d was stored below a subscriber that started at %d and is at %d", seq, s.start, s.next)
	}
}

func (s *subscriber) told(seq weir.Seq) bool {
	return slices.ContainsFunc(s.lost, func(l [2]weir.Seq) bool { return l[0] <= seq && seq <= l[1] })
}

// readAll lets every subscriber read until it waits, which it does at the first sequence that is
// not final.
func (h *history) readAll(t *rapid.T) {
	for _, s := range h.subs {
		for s.step(t, h) != stream.Wait {
		}
	}
}
