package client_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"weir/client"
)

// A server accepts connections and never answers. The client still gives up when the time in GiveUp
// has passed, although the timeout of an attempt is longer.
func TestGiveUpInAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, client.Options{URL: "http://weir.example", Timeout: time.Hour, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		start := time.Now()
		if _, err := c.Publisher(t.Context(), "x", client.PublisherOptions{GiveUp: 7 * time.Second}); !errors.Is(err, client.ErrGivenUp) || time.Since(start) != 7*time.Second {
			t.Errorf("opening a publisher ended after %v: %v, want ErrGivenUp after 7s", time.Since(start), err)
		}
		for name, from := range map[string]client.From{
			"oldest": client.Oldest,
			"resume": client.Resume(client.Position{Seq: 4, Created: 1}), // a subscriber that resumes first asks for the cursor
		} {
			start = time.Now()
			for _, err := range c.Subscriber("x", client.SubscriberOptions{From: from, GiveUp: 7 * time.Second, Silence: time.Hour}).Batches(t.Context()) {
				if !errors.Is(err, client.ErrGivenUp) || time.Since(start) != 7*time.Second {
					t.Errorf("%s: a subscriber ended after %v: %v, want ErrGivenUp after 7s", name, time.Since(start), err)
				}
			}
		}
	})
}
