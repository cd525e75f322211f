package hub

import (
	"errors"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
)

// A stream with a time to live is deleted when it has not been used for that time. Publishing,
// reading a batch and starting a subscription are uses; asking for the stream object is not. The
// uses survive a restart: the stream does not expire early, and at most saveEvery late.
func TestTimeToLive(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 1000 })
		id := s.ID
		there := func(want bool) {
			t.Helper()
			if _, err := h.Stream(id); (err == nil) != want {
				t.Fatalf("at %v: %v; want the stream to exist: %v", h.now(), err, want)
			}
		}
		uses := []func(){
			func() { publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}}) },
			func() {
				if _, err := s.Batch(ctx, 1); err != nil {
					t.Error(err)
				}
			},
			func() {
				if page, err := s.Page(ctx, PageQuery{From: Oldest, Limit: 1, Bytes: 1}); err == nil {
					page.Close()
				}
			},
			func() {
				sub, err := s.Subscribe(ctx, Head)
				if err != nil {
					t.Fatal(err)
				}
				sub.Close()
			},
		}
		for _, use := range uses {
			time.Sleep(999 * time.Second)
			use()
		}
		time.Sleep(500 * time.Second)
		if o, err := s.Object(ctx); err != nil || o.TTLSeconds != 1000 {
			t.Errorf("the object is %+v, %v", o, err)
		}
		h.Close()
		h = open(t, e, Options{})
		there(true)
		s, _ = h.Stream(id)
		time.Sleep(450 * time.Second)
		there(true)
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := sub.Next(ctx, time.Hour)
			ended <- err
		}()
		time.Sleep(999 * time.Second)
		there(true)
		time.Sleep(time.Second)
		there(false)
		if err := <-ended; !errors.Is(err, ErrExpired) {
			t.Errorf("the subscription ended with %v", err)
		}
		sub.Close()
		s = made(t, h, func(s *Spec) { s.ID, s.TTLSeconds = id, 2 })
		time.Sleep(2 * time.Second)
		s = made(t, h, func(s *Spec) { s.ID, s.ExpiresAt = id, h.now().Add(10*time.Second) })
		time.Sleep(9 * time.Second)
		there(true)
		publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
		time.Sleep(time.Second)
		there(false)
		h.Close()
		h = open(t, e, Options{})
		there(false)
		time.Sleep(5 * time.Second)
		if n := h.Count("p"); n != 0 {
			t.Errorf("%d streams are left", n)
		}
		h.Close()
	})
}

// After a restart the last use may be up to saveEvery later than the document says, so the stream
// lives that much longer, and no more.
func TestTimeToLiveAfterRestart(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		s := made(t, h, func(s *Spec) { s.TTLSeconds = 80_000 })
		time.Sleep(20_000 * time.Second)
		publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("x")}})
		time.Sleep(5 * time.Second) // the last store is older than saveEvery, so this use is stored at once
		name := "renamed"
		if _, err := s.Change(ctx, Change{Name: &name}); err != nil { // must keep the last use in the document
			t.Fatal(err)
		}
		h.Close()
		h = open(t, e, Options{})
		time.Sleep(79_990 * time.Second)
		if _, err := h.Stream(s.ID); err != nil {
			t.Errorf("expired too early: %v", err)
		}
		time.Sleep(10_015 * time.Second)
		if _, err := h.Stream(s.ID); err == nil {
			t.Error("expired too late")
		}
		h.Close()
	})
}
