package hub

import (
	"sync/atomic"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal"
)

// The number that a producer gives to a batch is as durable as the batch. After a power cut at any
// time, either the batch is stored and its repetition is a duplicate, or the batch is not stored
// and its repetition is stored once.
func TestProducersSurvivePowerCut(t *testing.T) {
	by := func(n uint64) *Publish {
		return &Publish{Writer: &Writer{Producer: "p", Seq: n}, Batch: weir.Batch{Events: 1, Payload: []byte("x")}}
	}
	work := func(s *Stream, acknowledged *atomic.Uint64) {
		for n := range uint64(5) {
			if ack := publish(t, s, by(n)); ack.Duplicate {
				t.Errorf("number %d is a duplicate: %+v", n, ack)
			}
			acknowledged.Store(n + 1)
		}
	}
	powerCuts(t, 10, work, func(s *Stream, acknowledged uint64) {
		o, err := s.Object(ctx)
		if err != nil || uint64(o.Cursor) < acknowledged {
			t.Fatalf("the stream is %+v, %v; %d batches were acknowledged", o, err, acknowledged)
		}
		stored := uint64(o.Cursor)
		for n := range stored + 1 {
			p := by(n)
			ack, err := s.Publish(ctx, p)
			if err != nil || ack.Duplicate != (n < stored) || ack.Duplicate && p.Known.Seq != stored-1 {
				t.Errorf("with %d batches stored, number %d got %+v, %+v, %v", stored, n, ack, p.Known, err)
			}
		}
	})
}

// powerCuts calls the function work with a new stream, and cuts the power at every call to the disk
// and at the end. The function work counts in acknowledged what the hub has acknowledged. After
// each cut, powerCuts opens the store and calls the function check with the stream and with the
// value that acknowledged had before the cut. The test fails if there were fewer cuts than the
// parameter least.
func powerCuts(t *testing.T, least uint64, work func(s *Stream, acknowledged *atomic.Uint64), check func(s *Stream, acknowledged uint64)) {
	t.Helper()
	small := journal.Options{SegmentSize: 256 << 10}
	for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
		fs := faulty.New()
		j, err := journal.Open(fs, small)
		if err != nil {
			t.Fatal(err)
		}
		h := open(t, j, Options{})
		s := made(t, h, nil)
		var acknowledged, cuts atomic.Uint64
		cut := func(faulty.Call) error {
			before := acknowledged.Load()
			j, err := journal.Open(fs.Crash(loss, nil), small)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			h := open(t, j, Options{})
			defer h.Close()
			s, err := h.Stream(s.ID)
			if err != nil {
				t.Fatal(err)
			}
			check(s, before)
			cuts.Add(1)
			return nil
		}
		fs.OnCall(cut)
		work(s, &acknowledged)
		fs.OnCall(nil)
		cut(faulty.Call{})
		if cuts.Load() < least {
			t.Errorf("only %d power cuts, want %d or more", cuts.Load(), least)
		}
		h.Close()
		j.Close()
	}
}
