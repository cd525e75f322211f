// Package client talks to a Weir service: it manages streams, publishes to them and subscribes to them. It needs the
// standard library and nothing else, and leaves no goroutine behind once what was opened is closed.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8080", Key: key})
//	s, err := c.CreateStream(ctx, client.NewStream{Name: "orders"})
//
// There are three ways to publish:
//
//   - [Client.Publish] sends one batch and lets the service choose its sequence. It carries an idempotency key of its own,
//     so that it is tried again without risk.
//   - [Client.PublishAt] sends one batch under a sequence that the caller chose.
//   - [Client.Publisher] is for many events: it groups them into batches, numbers these, and keeps many of them on the way
//     over one connection. Whatever happens to the connection or to the server, each event is stored once and in order, or
//     the publisher says which are not.
//
// [Client.Subscriber] is an iterator that comes back by itself and yields every batch once and in order:
//
//	for batch, err := range c.Subscriber(s.ID, client.SubscriberOptions{From: client.Oldest}).Batches(ctx) {
//		if err != nil {
//			return err // final: everything else was tried again
//		}
//		if batch.Gap != nil {
//			continue // evicted before it could be read
//		}
//		for _, event := range batch.Events { ... }
//	}
//
// Refusals of the service are an [*Error] with a code, the status and the request id.
package client
