package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/embedded"
)

// opening measures the first publish to a stream that was idle. Every batch of the stream has an
// idempotency key.
func opening(dir string) ([]figure, error) {
	var figures []figure
	for _, c := range []struct {
		name string
		open func(dir string) (*inside, error)
		n    int
	}{
		{"journal", openInside, 100_000},
		{"journal", openInside, 1_000_000},
		{"cluster of one node", openClustered, 100_000},
	} {
		f, err := openingOf(filepath.Join(dir, strings.ReplaceAll(c.name, " ", "-")+strconv.Itoa(c.n)), c.n, c.name, c.open)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

// openClustered opens a hub on a NATS server inside this process, which syncs every write.
func openClustered(dir string) (*inside, error) {
	s, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	nc, err := s.Connect()
	if err != nil {
		s.Stop()
		return nil, err
	}
	e, err := jetstream.Open(context.Background(), nc, jetstream.Options{Room: s.Room})
	if err != nil {
		nc.Close()
		s.Stop()
		return nil, err
	}
	in := &inside{engine: e, stop: s.Stop}
	return in, in.open(e)
}

func openingOf(dir string, n int, name string, openHub func(dir string) (*inside, error)) ([]figure, error) {
	in, err := openHub(dir)
	if err != nil {
		return nil, err
	}
	defer func() { in.close() }()
	s, err := in.stream()
	if err != nil {
		return nil, err
	}
	payload := make([]byte, 100)
	if err := fillKeyed(s, n, payload); err != nil {
		return nil, err
	}
	key := n
	first := func() (float64, error) {
		key++
		start := time.Now()
		err := store(s, "key-"+strconv.Itoa(key), payload)
		return ms(time.Since(start)), err
	}
	var open, idle []float64
	for range 9 {
		t, err := first()
		if err != nil {
			return nil, err
		}
		open = append(open, t)
	}
	for range 5 {
		if err := in.idle(); err != nil {
			return nil, err
		}
		t, err := first()
		if err != nil {
			return nil, err
		}
		idle = append(idle, t)
	}
	var fresh, old []float64
	for _, ahead := range []time.Duration{0, 25 * time.Hour} {
		for range 3 {
			in.close()
			at := in.ahead.Load()
			if in, err = openHub(dir); err != nil {
				return nil, err
			}
			in.ahead.Store(at + int64(ahead))
			if s, err = in.Stream(s.ID); err != nil {
				return nil, err
			}
			t, err := first()
			if err != nil {
				return nil, err
			}
			if ahead == 0 {
				fresh = append(fresh, t)
			} else {
				old = append(old, t)
			}
		}
	}
	return []figure{
		{fmt.Sprintf("%s: publish to an open stream of %d keyed batches", name, n), middle(open), "ms"},
		{"  first after ten idle seconds", middle(idle), "ms"},
		{"  first after a restart", middle(fresh), "ms"},
		{"  first after a restart, keys older than a day", middle(old), "ms"},
	}, nil
}

// idle moves the hub's clock forward until the hub has closed all streams.
func (in *inside) idle() error {
	in.ahead.Add(int64(time.Second)) // the hub closes a stream only if an earlier check already found it unused
	for deadline := time.Now().Add(time.Minute); in.Stats().Open > 0; time.Sleep(100 * time.Millisecond) {
		in.ahead.Add(int64(time.Second))
		if time.Now().After(deadline) {
			return errors.New("the stream did not become idle")
		}
	}
	return nil
}
