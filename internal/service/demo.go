package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// demo keeps the demo stream and publishes to it.
type demo struct {
	hub    *hub.Hub
	store  *store
	logger *slog.Logger
	late   bool // the stream could not be created at the start, so the method publish creates it
}

// prepare creates or deletes the demo stream. If the store accepts no writes now, that is no error:
// the method publish creates the stream later.
func (d *demo) prepare(ctx context.Context, wanted bool) error {
	change, then := d.drop, "the demo stream was not deleted; the next start tries again"
	if wanted {
		change, then = d.create, "the demo stream was not created; the service creates it when the store accepts writes"
	}
	err := change(ctx)
	if known, ok := errors.AsType[*weir.Error](err); ok && known.Code == weir.StorageUnavailable {
		d.logger.Warn(then, "error", err)
		d.late = wanted
		return nil
	}
	return err
}

// create creates the demo stream if it is missing (D22).
func (d *demo) create(ctx context.Context) error {
	if _, err := d.hub.Find(ctx, access.DemoStream); err == nil {
		return nil
	}
	_, err := d.hub.Create(ctx, hub.Spec{
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

// drop deletes the demo stream that an earlier start created. Without the demo, the demo project does
// not exist, so the stream would belong to no project.
func (d *demo) drop(ctx context.Context) error {
	s, err := d.hub.Stream(access.DemoStream)
	if err != nil {
		return nil
	}
	if err := s.Delete(ctx); err != nil {
		return fmt.Errorf("delete the demo stream: %w", err)
	}
	return nil
}

// feed publishes a small event every second: a random walk that looks like a temperature.
func (d *demo) feed(stopping <-chan struct{}) {
	tick := time.NewTicker(demoEvery)
	defer tick.Stop()
	temperature := 20.0
	failing := false
	for {
		select {
		case <-stopping:
			return
		case now := <-tick.C:
			if !d.store.isFirst() {
				continue // another node publishes to the demo stream
			}
			temperature += (20-temperature)/50 + rand.NormFloat64()/5
			event := fmt.Sprintf(`[{"time":%q,"celsius":%.2f}]`, weir.TimeOf(now), temperature)
			err := d.publish(event)
			if isOver(stopping) {
				return
			}
			if err != nil && !failing {
				d.logger.Warn("publishing to the demo stream failed", "error", err)
			}
			failing = err != nil
		}
	}
}

// isOver reports whether the channel stopping is closed.
func isOver(stopping <-chan struct{}) bool {
	select {
	case <-stopping:
		return true
	default:
		return false
	}
}

// publish publishes a batch of one event.
func (d *demo) publish(event string) error {
	ctx := context.Background()
	if d.late {
		if err := d.create(ctx); err != nil {
			return err
		}
		d.late = false
	}
	s, err := d.hub.Stream(access.DemoStream)
	if err != nil {
		return err
	}
	_, err = s.Publish(ctx, &hub.Publish{Batch: weir.Batch{Events: 1, ContentType: "application/json", Payload: []byte(event)}})
	return err
}
