package client_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"weir"
	"weir/client"
)

// A batch was sent and not acknowledged, and then its sequence number was evicted. It may or may
// not have been stored. The publisher does not invent an acknowledgement, and the batch stays
// unacknowledged.
func TestPublisherEvicted(t *testing.T) {
	d, svc := newFlaky(t)
	c := svc.client(client.Options{})
	id := newStream(t, c, client.NewStream{MaxBytes: weir.MinMaxBytes, Mode: weir.Raw})
	var acks []weir.Seq
	p := publisher(t, c, id, client.PublisherOptions{InFlight: 1, OnAck: func(a weir.Ack) { acks = append(acks, a.Seq) }})
	large := make([]byte, weir.MinMaxBytes-10) // the stream has room for one batch of this size
	if err := p.AddBytes(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), id, client.Bytes(large)); err != nil { // another writer takes sequence 2
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), id, client.Bytes(large)); err != nil { // and also takes sequence 3, which evicts batch 2
		t.Fatal(err)
	}
	d.lose.Store(1)
	if err := p.AddBytes(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); !errors.Is(err, client.ErrEvicted) {
		t.Errorf("got %v, want ErrEvicted", err)
	}
	if left := p.Unacknowledged(); len(left) != 1 || left[0].Seq != 2 || !slices.Equal(acks, []weir.Seq{1}) {
		t.Errorf("acknowledged %v, %d batches unacknowledged; want batch 1 acknowledged and batch 2 not", acks, len(left))
	}
}

// A run that sets the sequence numbers of its batches can be repeated from its beginning, even if
// its first batches were evicted in the meantime.
func TestPublisherRepeatedAfterEviction(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{MaxBytes: weir.MinMaxBytes, Mode: weir.Raw})
	start := weir.Seq(1)
	run := func(n int, o client.PublisherOptions) error {
		o.StartAt = &start
		p := publisher(t, c, id, o)
		for i := range n {
			if err := p.AddBytes(t.Context(), fmt.Append(make([]byte, weir.MinMaxBytes/2-10), i)); err != nil {
				return err
			}
		}
		return p.Close(t.Context())
	}
	if err := run(5, client.PublisherOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := run(6, client.PublisherOptions{}); !errors.Is(err, client.ErrEvicted) {
		t.Errorf("without OnEvicted: %v, want ErrEvicted", err)
	}
	var gone, stored []weir.Seq
	if err := run(6, client.PublisherOptions{InFlight: 1, OnEvicted: func(s weir.Seq) { gone = append(gone, s) },
		OnAck: func(a weir.Ack) { stored = append(stored, a.Seq) }}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(gone, []weir.Seq{1, 2, 3}) || !slices.Equal(stored, []weir.Seq{4, 5, 6}) {
		t.Errorf("evicted %v, stored %v; want 1 to 3 evicted and 4 to 6 stored", gone, stored)
	}
}
