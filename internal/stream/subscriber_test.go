package stream_test

import (
	"slices"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/stream"
)

// subscriber is a client that follows a stream over reconnects and writes down what it is told.
type subscriber struct {
	from  stream.From
	start weir.Seq // the first sequence that it may expect
	next  weir.Seq
	got   []weir.Seq
	lost  [][2]weir.Seq // told as evicted
	seen  bool          // an event with an id came
	id    weir.Seq      // of the last event: a reconnect goes on above it
}

func (h *history) subscribe(t *rapid.T) {
	c := h.model.cursor()
	after := stream.After(c + 3 - min(c+3, weir.Seq(rapid.IntRange(0, 9).Draw(t, "after"))))
	s := &subscriber{from: []stream.From{stream.Oldest, stream.Head, after}[rapid.IntRange(0, 2).Draw(t, "from")]}
	want := map[stream.From]weir.Seq{stream.Head: c + 1, stream.Oldest: h.model.low()}
	s.begin(h)
	if seq, ok := want[s.from]; ok && s.start != seq {
		t.Fatalf("a subscription from %+v wants %d, want %d", s.from, s.start, seq)
	}
	h.subs = append(h.subs, s)
}

func (s *subscriber) begin(h *history) {
	s.next = h.state.Resolve(s.from)
	s.start = s.next
}

// reconnect goes on above the last id seen. Who saw none starts as the first time.
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

// step takes one step and checks it against what is stored, missing and gone.
func (s *subscriber) step(t *rapid.T, h *history) stream.StepKind {
	step := h.state.Next(s.next)
	wanted := s.next
	if h.model.closed[0] {
		wanted = max(wanted, 1) // a 0 that came too late is nobody's loss
	}
	low, final := h.model.low(), h.model.final()
	var want stream.Step
	switch {
	case wanted < low:
		want = stream.Step{Kind: stream.Gap, First: wanted, Last: low - 1}
	case wanted < final:
		want = stream.Step{Kind: stream.Read, First: wanted, Last: final - 1}
	}
	if step != want {
		t.Fatalf("a subscriber at %d is told %+v, want %+v", s.next, step, want)
	}
	switch step.Kind {
	case stream.Gap:
		if !h.model.evicted[step.Last] {
			t.Fatalf("a subscriber is told of the loss of %d..%d, but %d was not evicted", step.First, step.Last, step.Last)
		}
		s.lost = append(s.lost, [2]weir.Seq{step.First, step.Last})
		s.next, s.seen, s.id = step.Last+1, true, step.Last
	case stream.Read:
		for _, seq := range h.log.batches(step.First, step.Last) {
			if s.seen && seq <= s.id {
				t.Fatalf("a subscriber gets %d after it saw %d", seq, s.id)
			}
			s.got = append(s.got, seq)
			s.seen, s.id = true, seq
		}
		s.next = step.Last + 1
	}
	s.check(t, h)
	return step.Kind
}

// check holds the promise of D4 and D16: of what lies behind a subscriber, every batch was sent or told as lost.
func (s *subscriber) check(t *rapid.T, h *history) {
	for seq := range h.model.stored {
		if seq < s.start || seq >= s.next {
			continue
		}
		if got, lost := slices.Contains(s.got, seq), s.told(seq); got == lost {
			t.Fatalf("a subscriber from %d on is at %d: batch %d was sent: %v, told as lost: %v", s.start, s.next, seq, got, lost)
		}
	}
}

// published checks that nothing is stored behind a subscriber, who would never get it.
func (s *subscriber) published(t *rapid.T, seq weir.Seq) {
	if seq >= s.start && seq < s.next && !s.told(seq) {
		t.Fatalf("batch %d is stored behind a subscriber from %d on that is at %d", seq, s.start, s.next)
	}
}

func (s *subscriber) told(seq weir.Seq) bool {
	return slices.ContainsFunc(s.lost, func(l [2]weir.Seq) bool { return l[0] <= seq && seq <= l[1] })
}

// readAll lets every subscriber read until it waits: it is then at the first sequence that is not final.
func (h *history) readAll(t *rapid.T) {
	for _, s := range h.subs {
		for s.step(t, h) != stream.Wait {
		}
	}
}
