package hub

import (
	"sync/atomic"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal"
)

// A producer is as durable as its batch. After a power cut at any time, the batch is stored and its
// repetition is a duplicate, or neither is there and the repetition is stored once.
func TestProducersSurvivePowerCut(t *testing.T) {
	by := func(n uint64) *Publish {
		return &Publish{Writer: &Writer{Producer: "p", Seq: n}, Batch: weir.Batch{Events: 1, Payload: []byte("x")}}
	}
	for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
		fs := faulty.New()
		j, err := journal.Open(fs, journal.Options{SegmentSize: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		h := open(t, j, Options{})
		s := made(t, h, nil)
		var acknowledged, cuts atomic.Uint64
		check := func(fs *faulty.FS, acknowledged uint64) {
			j, err := journal.Open(fs, journal.Options{SegmentSize: 256 << 10})
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
			cuts.Add(1)
		}
		fs.OnCall(func(faulty.Call) error {
			check(fs.Crash(loss, nil), acknowledged.Load())
			return nil
		})
		for n := range uint64(5) {
			if ack := publish(t, s, by(n)); ack.Duplicate {
				t.Errorf("number %d is a duplicate: %+v", n, ack)
			}
			acknowledged.Store(n + 1)
		}
		fs.OnCall(nil)
		check(fs.Crash(loss, nil), acknowledged.Load())
		if cuts.Load() < 10 {
			t.Errorf("only %d power cuts", cuts.Load())
		}
		h.Close()
		j.Close()
	}
}
