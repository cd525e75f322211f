package http3_test

import (
	"strings"
	"testing"

	"weir/client"
	"weir/internal/faultnet"
	"weir/internal/service/servicetest"
)

// A publisher survives lost and reordered packets. The streams of HTTP/3 then arrive out of order, so
// that batches reach the service before their predecessors. No batch is lost or stored twice.
func TestLossAndReordering(t *testing.T) {
	svc := servicetest.Start(t, servicetest.Options{Args: []string{"--https", "127.0.0.1:0"}})
	x, err := faultnet.Start(faultnet.Options{Backend: strings.TrimPrefix(svc.HTTPS, "https://"), UDP: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	c, err := client.New(client.Options{URL: "https://" + x.Address(), Key: client.Key(svc.Key), Transport: newTransport(t, svc.Data)})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.CreateStream(t.Context(), client.NewStream{Name: "over HTTP/3"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Publisher(t.Context(), stream.ID, client.PublisherOptions{BatchEvents: 1})
	if err != nil {
		t.Fatal(err)
	}
	const n = 800
	for i := range n {
		switch i % 100 {
		case 20:
			x.Set(faultnet.Conditions{Loss: 0.3})
		case 50:
			x.Set(faultnet.Conditions{Reorder: 0.3})
		case 80:
			x.Set(faultnet.Conditions{})
		}
		if err := p.Add(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, c.Subscriber(stream.ID, client.SubscriberOptions{From: client.Oldest}), n)
}
