package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// The demo keeps an hour, in little space.
const (
	demoRetention = 3600
	demoEvery     = time.Second
)

// makeDemo makes the demo stream where it is missing (D22).
func (svc *service) makeDemo(ctx context.Context) error {
	if _, err := svc.hub.Find(ctx, access.DemoStream); err == nil {
		return nil
	}
	_, err := svc.hub.Create(ctx, hub.Spec{
		ID: access.DemoStream, Project: access.DemoProject, Name: "demo", RetentionSeconds: demoRetention,
		MaxBytes: weir.MinMaxBytes, Mode: weir.JSON,
	})
	if known, ok := errors.AsType[*weir.Error](err); ok && known.Code == weir.StreamNameTaken {
		return nil // by another node, just now
	}
	if err != nil {
		return fmt.Errorf("make the demo stream: %w", err)
	}
	return nil
}

// dropDemo deletes the demo stream of an earlier start, which would otherwise be a stream of a project that nobody has.
func (svc *service) dropDemo(ctx context.Context) error {
	s, err := svc.hub.Stream(access.DemoStream)
	if err != nil {
		return nil
	}
	if err := s.Delete(ctx); err != nil {
		return fmt.Errorf("delete the demo stream: %w", err)
	}
	return nil
}

// feedDemo publishes a small event every second: a made-up temperature that wanders.
func (svc *service) feedDemo() {
	s, err := svc.hub.Stream(access.DemoStream)
	if err != nil {
		return
	}
	tick := time.NewTicker(demoEvery)
	defer tick.Stop()
	temperature := 20.0
	failing := false
	for {
		select {
		case <-svc.stopping:
			return
		case now := <-tick.C:
			if !svc.store.isFirst() {
				continue // another node does it
			}
			temperature += (20-temperature)/50 + rand.NormFloat64()/5
			event := fmt.Sprintf(`[{"time":%q,"celsius":%.2f}]`, weir.TimeOf(now), temperature)
			_, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{
				Events: 1, ContentType: "application/json", Payload: []byte(event),
			}})
			if err != nil && !failing {
				svc.logger.Warn("the demo stream is not fed", "error", err)
			}
			failing = err != nil
		}
	}
}
