// Package client is the Go client for Weir. It creates, changes, closes and deletes streams,
// publishes to them and subscribes to them. It has no dependencies beyond the standard library, and
// leaves no goroutines behind once everything that was opened is closed.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8080", Key: key})
//	s, err := c.CreateStream(ctx, client.NewStream{Name: "orders"})
//
// There are four ways to publish:
//
//   - [Client.Publish] sends one batch and lets the service choose its number. It sends an
//     idempotency key, so a retry does not store the batch twice.
//   - [Client.PublishOnce] does the same with an idempotency key that the caller chooses.
//   - [Client.PublishAt] sends one batch with a sequence number that the caller chooses.
//   - [Client.Publisher] is for many events. It groups them into batches, numbers the batches, and
//     keeps many of them in flight on one connection. If connections break or the server restarts,
//     it resends what was not acknowledged. Each event is stored once and in order, or the
//     publisher reports which events may be missing from the stream. It needs a service that knows
//     the header field x-svc-contiguous, and fails with [ErrUnsupported] otherwise.
//
// [Client.Subscriber] returns a subscriber, which reconnects on its own and yields every batch once
// and in order:
//
//	for batch, err := range c.Subscriber(s.ID, client.SubscriberOptions{From: client.Oldest}).Batches(ctx) {
//		if err != nil {
//			return err // permanent: the subscriber has retried everything else
//		}
//		if batch.Gap != nil {
//			continue // batches were evicted before they could be read
//		}
//		orders, err := client.Decode[Order](batch)
//	}
//
// [Client.Batches] reads the stored batches page by page and stops at the newest. It starts at a
// sequence number or at a point in time, or it reads a given number of the newest batches.
// [Client.Page] reads a single page.
//
// [Subscriber.Position] returns the position that the subscriber has reached. A program that saves
// this position can continue there in its next run with [Resume].
//
// If the service refuses a request, the error is an [*Error] with the code, the status and the
// request id. A response that is not from Weir, for example from a proxy, is treated like a broken
// connection. Timeouts measure the time without progress, so a slow connection is not treated as
// dead.
package client
