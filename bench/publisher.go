package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir"
	goclient "weir/client"
)

// publishers compares three ways to publish single events with the Go client over one connection,
// each with a synced acknowledgement: one request at a time, a publisher with one batch per event,
// and a publisher that groups events. The three ways take turns in every round. The figures of each
// way are the median over the rounds, and the best round, which other load on the machine disturbed
// least.
func publishers(dir string) ([]figure, error) {
	server, err := startWeir(dir)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	c, err := goclient.New(goclient.Options{URL: "http://" + server.addr, Key: goclient.Key(server.key)})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ways := []struct {
		name string
		run  func(context.Context, weir.StreamID) (int, error)
	}{
		{"one request at a time", func(ctx context.Context, id weir.StreamID) (int, error) { return oneByOne(ctx, c, id) }},
		{"publisher, one batch per event", func(ctx context.Context, id weir.StreamID) (int, error) { return pipelined(ctx, c, id, 1) }},
		{"publisher, grouped", func(ctx context.Context, id weir.StreamID) (int, error) { return pipelined(ctx, c, id, 0) }},
	}
	rates, ratios := make([][]float64, len(ways)), make([][]float64, len(ways))
	for range publisherRounds { // every round measures all three ways, so that a ratio compares measurements made at about the same time
		for i, way := range ways {
			s, err := c.CreateStream(context.Background(), goclient.NewStream{Name: way.name})
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(context.Background(), publisherSpan)
			start := time.Now()
			n, err := way.run(ctx, s.ID)
			cancel()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			rate := float64(n) / time.Since(start).Seconds()
			rates[i] = append(rates[i], rate)
			ratios[i] = append(ratios[i], rate/rates[0][len(rates[0])-1])
		}
	}
	var figures []figure
	for i, way := range ways {
		slices.Sort(rates[i])
		slices.Sort(ratios[i])
		figures = append(figures, figure{"client: " + way.name, rates[i][publisherRounds/2], "events/s"})
		if i > 0 {
			figures = append(figures, figure{"client: " + way.name + ", ratio", ratios[i][publisherRounds/2], "times one at a time"},
				figure{"client: " + way.name + ", best round / best round", rates[i][publisherRounds-1] / rates[0][publisherRounds-1], "times one at a time"})
		}
	}
	return figures, nil
}

const (
	publisherRounds = 15
	publisherSpan   = 500 * time.Millisecond
)

// smallEvent is about 100 bytes long.
const smallEvent = "an event of about a hundred bytes, like those of many programs: small, frequent, and worth keeping"

func oneByOne(ctx context.Context, c *goclient.Client, id weir.StreamID) (n int, err error) {
	for ; ctx.Err() == nil; n++ {
		if _, err := c.PublishAt(context.WithoutCancel(ctx), id, weir.Seq(n+1), goclient.Events(smallEvent)); err != nil {
			return n, err
		}
	}
	return n, nil
}

func pipelined(ctx context.Context, c *goclient.Client, id weir.StreamID, batchEvents int) (n int, err error) {
	p, err := c.Publisher(ctx, id, goclient.PublisherOptions{BatchEvents: batchEvents})
	if err != nil {
		return 0, err
	}
	for ; ctx.Err() == nil; n++ {
		if err := p.Add(context.WithoutCancel(ctx), smallEvent); err != nil {
			return n, err
		}
	}
	return n, p.Close(context.WithoutCancel(ctx))
}
