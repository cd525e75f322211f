package hub

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
)

// flood publishes empty batches until the stream refuses one, and returns how many were stored.
func flood(t *testing.T, s *Stream) weir.Seq {
	t.Helper()
	for n := range weir.Seq(100_000) {
		_, err := s.Publish(ctx, &Publish{})
		if code(err) == weir.StorageUnavailable {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatal("100,000 batches were stored, and none was refused")
	return 0
}

func inProject(p weir.ProjectID) func(*Spec) { return func(s *Spec) { s.Project = p } }

// The memory for all batches is bounded (D12). Beyond the bound, a project that uses more than its
// share cannot publish, but other projects can. Deleting streams frees memory.
func TestRoomIsShared(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		const bound = 64 << 10
		var log strings.Builder
		h := open(t, e, Options{IndexBytes: bound, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer func() { h.Close() }()
		greedy, second, modest := made(t, h, inProject("greedy")), made(t, h, inProject("greedy")), made(t, h, inProject("modest"))
		publish(t, modest, &Publish{})
		publish(t, second, at(1, "a"))
		publish(t, second, at(4, "d"))
		flood(t, greedy)

		// All streams of the project refuse new batches, before the body is read. Duplicates, reads
		// and other projects are not affected.
		for _, p := range []*Publish{{}, {Key: "k"}, at(5, "e"), at(9, "i")} {
			if _, err := second.Decide(ctx, p); code(err) != weir.StorageUnavailable {
				t.Errorf("decide on %+v: %v, want %s", p, err, weir.StorageUnavailable)
			}
			if _, err := second.Publish(ctx, p); code(err) != weir.StorageUnavailable {
				t.Errorf("publish %+v: %v, want %s", p, err, weir.StorageUnavailable)
			}
			p.Release()
		}
		if ack := publish(t, second, at(1, "a")); !ack.Duplicate {
			t.Errorf("publishing a stored batch again: got %+v, want a duplicate", ack)
		}
		if _, err := greedy.Batch(ctx, 1); err != nil {
			t.Errorf("reading a batch of the refused project: %v", err)
		}
		for range 50 {
			publish(t, modest, &Publish{})
		}
		if strings.Count(log.String(), "refused publishes of a project") != 1 || !strings.Contains(log.String(), "project=greedy") {
			t.Errorf("the log does not say exactly once which project was refused: %s", log.String())
		}

		<-time.After(20 * time.Second) // by now the logs of all streams are closed
		synctest.Wait()
		used := h.Stats().IndexBytes
		if used <= bound || used > 2*bound {
			t.Errorf("%d bytes are used, want a little more than %d", used, bound)
		}
		h.Close()
		h = open(t, e, Options{IndexBytes: bound, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if again := h.Stats().IndexBytes; again != used {
			t.Errorf("%d bytes are used after a restart, want %d as before", again, used)
		}
		refused, _ := h.Stream(second.ID)
		if _, err := refused.Publish(ctx, &Publish{}); code(err) != weir.StorageUnavailable {
			t.Errorf("publish after a restart: %v, want %s", err, weir.StorageUnavailable)
		}
		greedy, _ = h.Stream(greedy.ID)
		if err := greedy.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		publish(t, refused, &Publish{})
		<-time.After(2 * sweepEvery)
		synctest.Wait()
		if !strings.Contains(log.String(), "accepted publishes of a project again") {
			t.Errorf("the log does not say that the project may publish again: %s", log.String())
		}
		modest, _ = h.Stream(modest.ID)
		for _, s := range []*Stream{modest, refused} {
			if err := s.Delete(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if used := h.Stats().IndexBytes; used != 0 {
			t.Errorf("%d bytes are counted after all streams were deleted", used)
		}
		if n := h.room.projects.Load(); n != 0 {
			t.Errorf("%d projects are counted after all streams were deleted", n)
		}
	})
}

// A batch that fills an open gap is stored even if the memory is used up, because its publisher
// sent it in time, and the gap would be closed before memory is free again.
func TestLateBatchesFindRoom(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{IndexBytes: 16 << 10})
		defer h.Close()
		s, other := made(t, h, nil), made(t, h, nil)
		publish(t, s, at(1, "a"))
		flood(t, other)
		// Lower the count of used memory for a moment, so that the gap is already open when the
		// project is refused.
		h.room.used.Add(-1 << 20)
		publish(t, s, at(3, "c"))
		h.room.used.Add(1 << 20)
		p := at(2, "b")
		defer p.Release()
		if ack, err := s.Decide(ctx, p); ack != nil || err != nil {
			t.Fatalf("decide: got acknowledgement %v and error %v, want neither", ack, err)
		}
		publish(t, s, p)
	})
}

// Expired batches free memory, without a restart and without a deleted stream.
func TestRetentionMakesRoom(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{IndexBytes: 16 << 10})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.RetentionSeconds = 60 })
		n := flood(t, s)
		<-time.After(time.Minute + 2*trimAfter)
		synctest.Wait()
		if more := flood(t, s); more < n/2 {
			t.Errorf("stored %d batches at first, and %d after they had expired", n, more)
		}
	})
}

// A stream that keeps few batches because of its max_bytes is never refused, because evicted
// batches do not count for long.
func TestMaxBytesMakesRoom(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{IndexBytes: 2 << 20}) // evicted batches stay in the index until they are trimmed: after 256 KiB were evicted, or a minute
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.MaxBytes = 10_000 })
		for range 5_000 {
			publish(t, s, &Publish{Batch: weir.Batch{Payload: make([]byte, 1000)}})
			<-time.After(10 * time.Millisecond)
		}
	})
}

// Idempotency keys count towards the memory bound while their stream is open.
func TestKeysTakeRoom(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		use := func(keyed bool) int64 {
			before := h.Stats().IndexBytes
			s := made(t, h, nil)
			for i := range 1000 {
				p := &Publish{}
				if keyed {
					p.Key = strings.Repeat("k", i%200) + string(rune('a'+i/200))
				}
				publish(t, s, p)
			}
			<-time.After(2 * sweepEvery)
			synctest.Wait()
			return h.Stats().IndexBytes - before
		}
		if plain, keyed := use(false), use(true); keyed < plain+1000*32 {
			t.Errorf("1,000 batches use %d bytes without keys and %d with keys; want 32 bytes or more per key", plain, keyed)
		}
	})
}
