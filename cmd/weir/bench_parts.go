package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/client"
)

// publish runs publishers as fast as possible, each on its own stream.
func (l *load) publish(ctx context.Context, cl *client.Client) error {
	for range l.publishers {
		if _, err := l.stream(ctx, cl); err != nil {
			return err
		}
	}
	m := &meter{start: time.Now()}
	defer l.live("publish", m)()
	all := new(team)
	for _, id := range l.made {
		all.do(func() error {
			return l.publisher(ctx, cl, id, m, func() json.RawMessage { return l.event }, 0)
		})
	}
	if err := all.wait(); err != nil {
		return err
	}
	l.figures = append(l.figures, m.figure("publish", l.bytes))
	return nil
}

// fanOut publishes at a steady rate to a stream with many subscribers. Each event contains the time
// at which it was created.
func (l *load) fanOut(ctx context.Context, cl *client.Client) error {
	id, err := l.stream(ctx, cl)
	if err != nil {
		return err
	}
	m := &meter{}
	start := time.Now()
	listening, stopListening := context.WithCancel(ctx)
	defer stopListening()
	var ready sync.WaitGroup
	all := new(team)
	for range l.subscribers {
		ready.Add(1)
		all.do(func() error { return l.listen(listening, cl, id, m, start, ready.Done) })
	}
	if _, err := cl.Publish(ctx, id, client.Events("begin")); err != nil {
		return err
	}
	ready.Wait()
	m.start = time.Now()
	stop := l.live("fan-out", m)
	pad := strings.Repeat("x", int(l.bytes)-22)
	sent := &meter{start: m.start}
	err = l.publisher(ctx, cl, id, sent, func() json.RawMessage {
		return fmt.Appendf(nil, `"%020d%s"`, time.Since(start), pad)
	}, time.Second/time.Duration(l.rate))
	stop()
	if err == nil {
		_, err = cl.Publish(context.WithoutCancel(ctx), id, client.Events("end"))
	}
	if err != nil {
		stopListening()
	}
	if lost := all.wait(); err == nil {
		err = lost
	}
	m.retries.Add(sent.retries.Load())
	l.figures = append(l.figures, m.figure(fmt.Sprintf("fan-out to %d", l.subscribers), l.bytes))
	return err
}

// listen subscribes to a stream and records how long each event took to arrive. It calls the
// function ready when it receives the "begin" event, and returns when it receives the "end" event.
// It does not count these two events.
func (l *load) listen(ctx context.Context, cl *client.Client, id weir.StreamID, m *meter, start time.Time, ready func()) error {
	begin := sync.OnceFunc(ready)
	defer begin()
	for b, err := range cl.Subscriber(id, client.SubscriberOptions{From: client.Oldest, OnRetry: func(error, time.Duration) { m.retries.Add(1) }}).Batches(ctx) {
		if err != nil {
			return err
		}
		for _, e := range b.Events {
			switch string(e) {
			case `"begin"`:
				begin()
				continue
			case `"end"`:
				return nil
			}
			made, err := strconv.ParseInt(string(e[1:21]), 10, 64)
			if err != nil {
				return fmt.Errorf("received an event that was not published: %w", err)
			}
			m.note(time.Since(start) - time.Duration(made))
		}
	}
	return errors.New("the stream was deleted")
}

// catchUp reads everything that one publisher stored, from the beginning.
func (l *load) catchUp(ctx context.Context, cl *client.Client) error {
	id := l.made[0]
	cursor, err := cl.Cursor(ctx, id)
	if err != nil {
		return err
	}
	m := &meter{start: time.Now()}
	defer l.live("catch-up", m)()
	for b, err := range cl.Subscriber(id, client.SubscriberOptions{From: client.Oldest, OnRetry: func(error, time.Duration) { m.retries.Add(1) }}).Batches(ctx) {
		if err != nil {
			return err
		}
		m.events.Add(int64(len(b.Events)))
		if b.Seq >= cursor.Cursor {
			break
		}
	}
	l.figures = append(l.figures, m.figure("catch-up", l.bytes))
	return nil
}

// team runs goroutines and records the first error that one of them returns.
type team struct {
	work  sync.WaitGroup
	once  sync.Once
	fault error
}

func (t *team) do(f func() error) {
	t.work.Go(func() {
		if err := f(); err != nil {
			t.once.Do(func() { t.fault = err })
		}
	})
}

func (t *team) wait() error {
	t.work.Wait()
	return t.fault
}
