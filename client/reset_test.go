package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"weir"
	"weir/client"
	"weir/internal/access"
)

// A subscriber resumes in a stream that was deleted and created again. It reports a reset and
// continues with the new stream from its beginning (D39).
func TestSubscriberReset(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	publishNumbers(t, c, id, 1, 5)
	s := c.Subscriber(id, client.SubscriberOptions{From: client.Oldest})
	take(t, s, 5)
	saved, ok := s.Position()
	text, err := json.Marshal(saved)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	resume := func() *client.Subscriber {
		var p client.Position
		if err := json.Unmarshal(text, &p); err != nil || p != saved {
			t.Fatalf("read %v, want %v: %v", p, saved, err)
		}
		return c.Subscriber(id, client.SubscriberOptions{From: client.Resume(p)})
	}
	publishNumbers(t, c, id, 6, 6)
	if got := take(t, resume(), 1); !slices.Equal(got, []weir.Seq{6}) {
		t.Errorf("resumed with sequences %d, want 6", got)
	}
	createAgain(t, c, id)
	publishNumbers(t, c, id, 1, 7) // so many batches that the old position exists in the new stream too
	var seqs []weir.Seq
	resets := 0
	for b, err := range resume().Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Reset != nil {
			if resets++; b.Reset.Lost != saved || b.Reset.Created == saved.Created || len(seqs) > 0 {
				t.Errorf("got reset %+v after %d batches", b.Reset, len(seqs))
			}
			continue
		}
		if seqs = append(seqs, b.Seq); len(seqs) == 7 {
			break
		}
	}
	if resets != 1 || !slices.Equal(seqs, []weir.Seq{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("got %d resets, then sequences %d; want one reset, then 1 to 7", resets, seqs)
	}
}

// createAgain deletes a stream, and creates another one with the same id and a later creation time.
func createAgain(t *testing.T, c *client.Client, id weir.StreamID) {
	t.Helper()
	before, err := c.Stream(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for { // until the new stream has a later creation time in milliseconds
		if err := c.DeleteStream(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		now, err := c.CreateStream(t.Context(), client.NewStream{Name: "again", ID: id})
		if err != nil {
			t.Fatal(err)
		}
		if now.CreatedAt != before.CreatedAt {
			return
		}
	}
}

// While a publisher is open, its stream is deleted and created again. The publisher must fail,
// whether the number of its next batch is free in the new stream or another publisher has used that
// number (D39). With a key that may only publish, the publisher cannot learn the creation time of
// the stream when it is opened, so it takes this time from the first acknowledgement.
func TestPublisherCreatedAgain(t *testing.T) {
	svc := startService(t, nil)
	c := svc.client(client.Options{})
	for _, blind := range []bool{false, true} {
		for _, filled := range []int{1, 2} {
			id := newStream(t, c, client.NewStream{})
			o := client.Options{}
			if blind {
				o.Key = client.Key(svc.NewKey(access.Publish))
			}
			p := publisher(t, svc.client(o), id, client.PublisherOptions{BatchEvents: 1})
			addNumbers(t, p, 1, 1)
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			createAgain(t, c, id)
			publishNumbers(t, c, id, 1, filled)
			addNumbers(t, p, 2, 2)
			if err := p.Close(t.Context()); !errors.Is(err, client.ErrReset) || len(p.Unacknowledged()) != 1 {
				t.Errorf("key may only publish: %t, %d batches in the new stream: %v, %d unacknowledged; want ErrReset and 1", blind, filled, err, len(p.Unacknowledged()))
			}
		}
	}
}

// A stream that was restored from an older backup ends before the position of the subscriber. Its
// creation time is unchanged, so only its cursor shows the restore.
func TestSubscriberRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cursor := `{"cursor":3,"updated_at":"2026-11-15T00:00:00.000Z"}`
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Accept") == "" {
				return respond(200, cursor, ""), nil
			}
			if r.Header.Get("Last-Event-ID") != "" {
				t.Errorf("the subscriber resumed at %s, which is beyond the end of the restored stream", r.Header.Get("Last-Event-ID"))
			}
			return stream(r, "event: end\ndata: {}\n\n", false)
		})})
		var p client.Position
		if err := p.UnmarshalText([]byte("41@2026-11-15T00:00:00.000Z")); err != nil {
			t.Fatal(err)
		}
		resets := 0
		for b, err := range c.Subscriber("x", client.SubscriberOptions{From: client.Resume(p)}).Batches(t.Context()) {
			if err != nil || b.Reset == nil || b.Reset.Lost != p {
				t.Fatalf("got %+v, %v; want a reset at position %v", b, err, p)
			}
			resets++
		}
		if resets != 1 {
			t.Errorf("%d resets, want 1", resets)
		}
	})
}

func TestPositionText(t *testing.T) {
	for _, text := range []string{"0", "41", "41@2026-11-15T00:00:00.000Z", "empty@2026-11-15T00:00:00.000Z"} {
		var p client.Position
		if err := p.UnmarshalText([]byte(text)); err != nil || p.String() != text {
			t.Errorf("%q became %q: %v", text, p, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "empty", "1@", "1@yesterday", "01"} {
		if err := new(client.Position).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was accepted as a position", text)
		}
	}
}

// If the service refuses a key, the client asks KeyFunc for another. Publishers and subscribers
// continue with the new key.
func TestKeyFunc(t *testing.T) {
	svc := startService(t, nil)
	asked := 0
	c := svc.client(client.Options{Key: "unused", KeyFunc: func(context.Context) (client.Key, error) {
		asked++
		if asked == 1 {
			return "svc_live_00000000000000000000000000000000", nil
		}
		return client.Key(svc.Key), nil
	}})
	id := newStream(t, c, client.NewStream{})
	if asked != 2 {
		t.Errorf("KeyFunc was called %d times, want 2", asked)
	}
	p := publisher(t, c, id, client.PublisherOptions{})
	addNumbers(t, p, 1, 3)
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	checkNumbers(t, readEverything(t, c, id), 3)
	stubborn := svc.client(client.Options{KeyFunc: func(context.Context) (client.Key, error) { return "svc_live_00000000000000000000000000000000", nil }})
	if _, err := stubborn.Stream(t.Context(), id); client.CodeOf(err) != weir.InvalidAPIKey {
		t.Errorf("KeyFunc returns the refused key again: %v, want invalid_api_key", err)
	}
}
