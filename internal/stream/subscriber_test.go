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
	start weir.Seq      // the first sequence that the subscriber may expect
	next  weir.Seq      // the sequence that it wants next
	got   []weir.Seq    // the batches that it received
	lost  [][2]weir.Seq // the ranges that were reported as evicted
	seen  bool          // whether it received an id
	id    weir.Seq      // the last id that it received; a reconnect resumes above this
}

func (h *history) subscribe(t *rapid.T) {
	c := h.model.cursor()
	after := stream.After(c + 3 - min(c+3, weir.Seq(rapid.IntRange(0, 9).Draw(t, "after"))))
	s := &subscriber{from: []stream.From{stream.Oldest, stream.Head, after}[rapid.IntRange(0, 2).Draw(t, "from")]}
	want := map[stream.From]weir.Seq{stream.Head: c + 1, stream.Oldest: h.model.low()}
	if len(h.model.stored) == 0 {
		want[stream.Head] = 0 // D15: Head then delivers every batch, even one under sequence 0
	}
	s.begin(h)
	if seq, ok := want[s.from]; ok && s.start != seq {
		t.Fatalf("a subscription from %+v starts at %d, want %d", s.from, s.start, seq)
	}
	h.subs = append(h.subs, s)
}

// begin starts a subscription. The id of the first frame is the sequence below the first one that
// the subscription wants. If the subscription starts at 0, the first frame has no id (D16).
func (s *subscriber) begin(h *history) {
	s.next = h.state.Resolve(s.from)
	s.start = s.next
	if s.next > 0 {
		s.seen, s.id = true, s.next-1
	}
}

// reconnect resumes above the last id that the subscriber received. If it received none, it starts
// again from the beginning.
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

// step lets the subscriber take one step and compares the step with that of the model.
func (s *subscriber) step(t *rapid.T, h *history) stream.StepKind {
	step := h.state.Next(s.next)
	wanted := s.next
	if h.model.closed[0] {
		wanted = max(wanted, 1) // sequence 0 is not reported as a gap if it was closed
	}
	low, end := h.model.low(), h.model.settled(wanted)
	var want stream.Step
	switch {
	case wanted < low:
		want = stream.Step{Kind: stream.Gap, First: wanted, Last: low - 1}
	case wanted < end:
		want = stream.Step{Kind: stream.Read, First: wanted, Last: end - 1}
	case h.model.ended:
		want = stream.Step{Kind: stream.End}
	}
	if step != want {
		t.Fatalf("a subscriber at %d gets %+v, want %+v", s.next, step, want)
	}
	switch step.Kind {
	case stream.Gap:
		if !h.model.evicted[step.Last] {
			t.Fatalf("a subscriber gets the gap %d..%d, but its last sequence, %d, was not evicted", step.First, step.Last, step.Last)
		}
		s.lost = append(s.lost, [2]weir.Seq{step.First, step.Last})
		s.next, s.seen, s.id = step.Last+1, true, step.Last
	case stream.Read:
		for _, seq := range h.log.batches(step.First, step.Last) {
			if s.seen && seq <= s.id {
				t.Fatalf("a subscriber gets batch %d after batch %d", seq, s.id)
			}
			s.got = append(s.got, seq)
			s.seen, s.id = true, seq
		}
		s.next = step.Last + 1
	}
	s.check(t, h)
	return step.Kind
}

// check verifies D4 and D16: every batch below a subscriber's position was either sent to the
// subscriber or reported as evicted, but not both.
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

// published checks that a new batch was not stored below a subscriber's position, because the
// subscriber would never receive it.
func (s *subscriber) published(t *rapid.T, seq weir.Seq) {
	if seq >= s.start && seq < s.next && !s.told(seq) {
		t.Fatalf("batch %d was stored below a subscriber that started at %d and is at %d", seq, s.start, s.next)
	}
}

func (s *subscriber) told(seq weir.Seq) bool {
	return slices.ContainsFunc(s.lost, func(l [2]weir.Seq) bool { return l[0] <= seq && seq <= l[1] })
}

// readAll lets every subscriber read until it has to wait, or the stream ends. A subscriber waits
// at the first sequence that can still be filled.
func (h *history) readAll(t *rapid.T) {
	for _, s := range h.subs {
		for kind := stream.Read; kind != stream.Wait && kind != stream.End; {
			kind = s.step(t, h)
		}
	}
}
