package service

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

// The demo stream keeps its batches for one hour. A batch is published every second.
const (
	demoRetention = 3600
	demoEvery     = time.Second
)

// makeDemo creates the demo stream if it is missing (D22).
func (svc *Service) makeDemo(ctx context.Context) error {
	if _, err := svc.Hub.Find(ctx, access.DemoStream); err == nil {
		return nil
	}
	_, err := svc.Hub.Create(ctx, hub.Spec{
		ID: access.DemoStream, Project: access.DemoProject, Name: "demo", RetentionSeconds: demoRetention,
		MaxBytes: weir.MinMaxBytes, Mode: weir.JSON,
	})
	if known, ok := errors.AsType[*weir.Error](err); ok && known.Code == weir.StreamNameTaken {
		return nil // another node has just created the stream
	}
	if err != nil {
		return fmt.Errorf("create the demo stream: %w", err)
	}
	return nil
}

// dropDemo deletes the demo stream that an earlier start created. Without the demo, the demo
// project does not exist, so the stream would belong to no project.
func (svc *Service) dropDemo(ctx context.Context) error {
	s, err := svc.Hub.Stream(access.DemoStream)
	if err != nil {
		return nil
	}
	if err := s.Delete(ctx); err != nil {
		return fmt.Errorf("delete the demo stream: %w", err)
	}
	return nil
}

// feedDemo publishes a small event every second: a random walk that looks like a temperature.
func (svc *Service) feedDemo() {
	s, err := svc.Hub.Stream(access.DemoStream)
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
				continue // another node publishes to the demo stream
			}
			temperature += (20-temperature)/50 + rand.NormFloat64()/5
			event := fmt.Sprintf(`[{"time":%q,"celsius":%.2f}]`, weir.TimeOf(now), temperature)
			_, err := s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{
				Events: 1, ContentType: "application/json", Payload: []byte(event),
			}})
			if err != nil && !failing {
				svc.logger.Warn("publishing to the demo stream failed", "error", err)
			}
			failing = err != nil
		}
	}
}
