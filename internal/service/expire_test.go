package service_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/hub"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// A key that revokes itself does so on every node, even on one whose clock is wrong, and its
// subscriptions end (D36, D18).
func TestKeyRevokesItselfOnAllNodes(t *testing.T) {
	nats := natstest.Start(t, true)
	a, b := startNode(t, nats, nats.URL, nil), startNode(t, nats, nats.URL, nil)
	wrong := startNode(t, nats, nats.URL, func() time.Time { return time.Now().Add(2 * time.Hour) })
	stream := "/streams/" + string(a.NewStream(hub.Spec{}))
	_, secret, err := a.Access.CreateKey(context.Background(), access.KeySpec{Project: a.Project, Kind: access.Live, RevokeAfter: 10})
	if err != nil {
		t.Fatal(err)
	}
	var ended []<-chan error
	for _, s := range []*servicetest.Service{a, b, wrong} {
		if code, text := ask(t, s, secret.Reveal(), http.MethodGet, stream, ""); code != http.StatusOK {
			t.Errorf("before the key revokes itself: %d %s", code, text)
		}
		ended = append(ended, subscribe(t, s, secret.Reveal(), stream))
	}
	for _, end := range ended {
		select {
		case <-end:
		case <-time.After(2 * time.Minute):
			t.Fatal("a subscription did not end")
		}
	}
	for _, s := range []*servicetest.Service{a, b, wrong} {
		if code, text := ask(t, s, secret.Reveal(), http.MethodGet, stream, ""); code != http.StatusUnauthorized {
			t.Errorf("after the key has revoked itself: %d %s", code, text)
		}
	}
}

// After a restart, a key that should have revoked itself in the meantime is refused.
func TestKeyRevokesItselfWhileTheServerIsDown(t *testing.T) {
	o := servicetest.Options{Journal: true, Data: t.TempDir()}
	s := servicetest.Start(t, o)
	stream := "/streams/" + string(s.NewStream(hub.Spec{}))
	_, secret, err := s.Access.CreateKey(context.Background(), access.KeySpec{Project: s.Project, Kind: access.Live, RevokeAfter: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	<-time.After(time.Second)
	s = servicetest.Start(t, o)
	if code, text := ask(t, s, secret.Reveal(), http.MethodGet, stream, ""); code != http.StatusUnauthorized {
		t.Errorf("after the restart: %d %s", code, text)
	}
}
