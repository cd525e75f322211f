package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir"
	"weir/client"
)

// The address and the key of a running service.
var (
	url string
	key client.Key
)

func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.CreateStream(ctx, client.NewStream{Name: "orders"})
	if err != nil {
		panic(err)
	}
	ack, err := c.Publish(ctx, s.ID, client.Events("hello", "world"))
	if err != nil {
		panic(err)
	}
	batch, err := c.Batch(ctx, s.ID, ack.Seq)
	if err != nil {
		panic(err)
	}
	for _, event := range batch.Events {
		fmt.Println(batch.Seq, string(event))
	}
	// Output:
	// 1 "hello"
	// 1 "world"
}

func ExampleClient_Publisher() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.CreateStream(ctx, client.NewStream{Name: "temperatures"})
	if err != nil {
		panic(err)
	}
	p, err := c.Publisher(ctx, s.ID, client.PublisherOptions{
		OnRetry: func(err error, wait time.Duration) { slog.Warn("publish failed", "error", err, "retry_in", wait) },
	})
	if err != nil {
		panic(err)
	}
	for n := range 10_000 {
		if err := p.Add(ctx, map[string]any{"n": n, "celsius": 20.5}); err != nil {
			panic(err) // the publisher has failed, or the event is invalid
		}
	}
	if err := p.Close(ctx); err != nil { // nil means that everything is stored
		for _, batch := range p.Unacknowledged() {
			fmt.Println("perhaps not stored: batch", batch.Seq, "with", len(batch.Events), "events")
		}
	}
	cursor, err := c.Cursor(ctx, s.ID)
	fmt.Println(cursor.Cursor > 0, err)
	// Output: true <nil>
}

func ExampleClient_Subscriber() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.CreateStream(ctx, client.NewStream{Name: "orders"})
	if err != nil {
		panic(err)
	}
	for _, item := range []string{"tea", "bread"} {
		if _, err := c.Publish(ctx, s.ID, client.Events(map[string]string{"item": item})); err != nil {
			panic(err)
		}
	}
	for batch, err := range c.Subscriber(s.ID, client.SubscriberOptions{From: client.Oldest}).Batches(ctx) {
		if err != nil {
			panic(err) // permanent: the subscriber has retried everything else
		}
		if batch.Gap != nil {
			fmt.Println("missed", batch.Gap.From, "to", batch.Gap.To)
			continue
		}
		orders, err := client.Decode[struct{ Item string }](batch)
		if err != nil {
			panic(err)
		}
		for _, order := range orders {
			fmt.Println(batch.Seq, order.Item)
		}
		if batch.Seq == 2 {
			break
		}
	}
	// Output:
	// 1 tea
	// 2 bread
}

// A program that saves the position of its subscriber continues there after a restart.
func ExampleResume() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.CreateStream(ctx, client.NewStream{Name: "orders"})
	if err != nil {
		panic(err)
	}
	var saved []byte // a real program saves this in a file or a database
	for _, item := range []string{"tea", "bread"} {
		if _, err := c.Publish(ctx, s.ID, client.Events(item)); err != nil {
			panic(err)
		}
		from := client.Oldest
		if saved != nil { // in a new run of the program
			var p client.Position
			if err := p.UnmarshalText(saved); err != nil {
				panic(err)
			}
			from = client.Resume(p)
		}
		sub := c.Subscriber(s.ID, client.SubscriberOptions{From: from})
		for batch, err := range sub.Batches(ctx) {
			if err != nil {
				panic(err)
			}
			fmt.Println(batch.Seq, string(batch.Events[0]))
			break
		}
		if p, ok := sub.Position(); ok {
			saved, _ = p.MarshalText()
		}
	}
	// Output:
	// 1 "tea"
	// 2 "bread"
}

// A publish whose outcome is unknown can be repeated with the same key.
func ExampleUnknownError() {
	ctx := context.Background()
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.CreateStream(ctx, client.NewStream{Name: "orders"})
	if err != nil {
		panic(err)
	}
	ack, err := c.Publish(ctx, s.ID, client.Events("tea"))
	var unknown *client.UnknownError
	if errors.As(err, &unknown) {
		ack, err = c.PublishOnce(ctx, s.ID, unknown.Key, client.Events("tea")) // the batch is not stored twice
	}
	fmt.Println(ack.Seq, err)
	// Output: 1 <nil>
}

func ExampleError() {
	c, err := client.New(client.Options{URL: url, Key: key})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, err = c.Stream(context.Background(), "nosuchstream0000000000")
	var refused *client.Error
	if errors.As(err, &refused) && refused.Code == weir.StreamNotFound {
		fmt.Println(refused.Status, refused.Code)
	}
	// Output: 404 stream_not_found
}
