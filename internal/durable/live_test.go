package durable

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir"
)

// The read of one reader takes long, because its key has no memory left. That does not delay
// readers at other positions. It delays readers at the same position by at most shareWait.
func TestSlowReaderDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &audience{}
		free := make(chan struct{})
		at := func(pos weir.Seq, wait <-chan struct{}) func() (*frame, error) {
			return func() (*frame, error) {
				if wait != nil {
					<-wait
				}
				return &frame{from: pos, data: []byte("x")}, nil
			}
		}
		go a.next(t.Context(), 7, at(7, free))
		synctest.Wait()
		start := time.Now()
		if f, err := a.next(t.Context(), 6, at(6, nil)); err != nil || f.from != 6 || time.Since(start) > 0 {
			t.Errorf("a reader at another position got %+v, %v after %v, want a frame at once", f, err, time.Since(start))
		}
		if f, err := a.next(t.Context(), 7, at(7, nil)); err != nil || f.from != 7 || time.Since(start) > shareWait {
			t.Errorf("a reader at the same position got %+v, %v after %v, want a frame after shareWait at most", f, err, time.Since(start))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.next(gone, 8, func() (*frame, error) { return nil, gone.Err() }); err == nil {
			t.Error("a reader that has left got a frame")
		}
		close(free)
		synctest.Wait()
	})
}

// Readers at the same position share one read.
func TestReadersShareAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &audience{}
		reads, got := 0, make(chan *frame, 10)
		for range cap(got) {
			go func() {
				f, _ := a.next(t.Context(), 7, func() (*frame, error) {
					reads++ // the other readers wait meanwhile, so there is no race
					time.Sleep(shareWait / 2)
					return &frame{from: 7, data: []byte("x")}, nil
				})
				got <- f
			}()
		}
		for range cap(got) {
			if f := <-got; f == nil || f.from != 7 {
				t.Errorf("a reader got %+v", f)
			}
		}
		if reads != 1 {
			t.Errorf("%d readers called read, want 1", reads)
		}
	})
}
