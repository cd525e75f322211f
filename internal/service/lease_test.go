package service_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/faultnet"
	"weir/internal/hub"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// A key is revoked while a node is cut off. That node ends the key's subscription and answers
// requests with 503, because it cannot know whether a key is still valid (D18). When the node is
// connected again, it refuses this key and accepts the other keys.
func TestRevokedWhileCutOff(t *testing.T) {
	nats := natstest.Start(t, true)
	proxy, err := faultnet.Start(faultnet.Options{Backend: strings.TrimPrefix(nats.URL, "nats://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	a := startNode(t, nats, nats.URL, nil)
	b := startNode(t, nats, "nats://"+proxy.Address(), nil)
	t.Cleanup(func() { proxy.Set(faultnet.Conditions{}) })

	stream := "/streams/" + string(a.NewStream(hub.Spec{}))
	key, secret, err := a.Access.CreateKey(context.Background(), access.KeySpec{Project: a.Project, Kind: access.Live, Name: "revoked"})
	if err != nil {
		t.Fatal(err)
	}
	becomes := func(key string, want int) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for late := time.Now().Add(2 * time.Minute); ; <-tick.C {
			code, text := ask(t, b, key, http.MethodGet, stream, "")
			if code == want {
				return
			}
			if time.Now().After(late) {
				t.Fatalf("the node answers %d %s, want %d", code, text, want)
			}
		}
	}
	becomes(secret.Reveal(), http.StatusOK)
	ended := subscribe(t, b, secret.Reveal(), stream)

	proxy.Set(faultnet.Conditions{BlackHole: true})
	if _, err := a.Access.Revoke(context.Background(), key.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the subscription ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the subscription did not end")
	}
	becomes(secret.Reveal(), http.StatusServiceUnavailable)
	becomes(a.Key, http.StatusServiceUnavailable)

	proxy.Set(faultnet.Conditions{})
	becomes(secret.Reveal(), http.StatusUnauthorized)
	becomes(a.Key, http.StatusOK)
}

// subscribe opens a subscription. The returned channel receives a value when the subscription ends.
func subscribe(t *testing.T, s *servicetest.Service, key, stream string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP+"/v1"+stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("authorization", "Bearer "+key)
	r.Header.Set("accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("subscribe: %d", answer.StatusCode)
	}
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.Copy(io.Discard, answer.Body)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		answer.Body.Close()
	})
	return ended
}
