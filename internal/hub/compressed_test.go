package hub

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"weir"
	"weir/internal/deflate"
	"weir/internal/engine"
)

// zipped collects what a compressed subscription sends.
type zipped struct {
	sub    *Subscription
	member *deflate.Member
	bytes.Buffer
}

// until reads frames until the subscription wants the sequence seq next. It returns the last frame.
func (z *zipped) until(t *testing.T, seq weir.Seq) (last []byte) {
	t.Helper()
	for z.sub.next < seq {
		e, err := z.sub.Next(ctx, time.Hour)
		if err != nil || e.Gap != nil || len(e.Frames) == 0 {
			t.Fatalf("at %d: got %+v, %v", z.sub.next, e, err)
		}
		for _, f := range e.Frames {
			z.Write(f)
			last = f
		}
	}
	return last
}

// A compressed subscription delivers the same frames as a plain one, as one gzip member, whether
// the frames are read from the log or from the tail (the recent batches in memory). Subscribers
// that read from the tail share the compressed bytes.
func TestCompressedSubscriptions(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{TailBytes: 100 << 10})
		defer h.Close()
		s := made(t, h, nil)
		rng := rand.New(rand.NewPCG(1, 2))
		var want []byte
		seq := weir.Seq(0)
		store := func(n int) {
			for range n {
				seq++
				size := rng.IntN(3000)
				if rng.IntN(20) == 0 {
					size = rng.IntN(80 << 10) // some frames are so large that their memory counts against a budget
				}
				b := weir.Batch{Seq: seq, Payload: bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, size)}
				want = testFrame(want, s.Mode, &b)
				publish(t, s, &Publish{Batch: weir.Batch{Payload: b.Payload}})
			}
		}
		store(100)
		var all [3]*zipped
		for i := range all {
			sub, err := s.Subscribe(ctx, After(0))
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			all[i] = &zipped{sub: sub, member: sub.Compress()}
			all[i].Write(deflate.Header)
			all[i].until(t, seq+1)
		}
		for range 50 {
			store(1)
			var frames [len(all)][]byte
			for i, z := range all {
				frames[i] = z.until(t, seq+1)
			}
			if &frames[0][0] != &frames[1][0] || &frames[0][0] != &frames[2][0] {
				t.Fatalf("batch %d was compressed more than once", seq)
			}
		}
		for i, z := range all {
			z.Write(z.member.Trailer())
			plain, err := gzip.NewReader(z)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(plain)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("subscriber %d got %d bytes, %v; want %d", i, len(got), err, len(want))
			}
		}
	})
}
