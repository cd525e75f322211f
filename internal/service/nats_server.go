package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"weir/internal/disk"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/nodes"
)

const (
	// tendEvery is how often the service checks the NATS server inside the process.
	tendEvery = 500 * time.Millisecond
	// restartEvery is the shortest time between two restarts of that server. Without this limit, a
	// disk that refuses every write would keep the node busy with restarts.
	restartEvery = 10 * time.Second
	// mostSilent is for how many times tendEvery that server may fail to say how it is. A disk on
	// which it waits for as long counts as a hang too. Ticks are counted, because the clock continues
	// while a process is stopped or a machine sleeps.
	mostSilent = 120
)

// errHangs says that the NATS server inside this process hangs.
var errHangs = errors.New("the NATS server of this node hangs")

// space returns the free bytes and the size of the file system of the NATS server inside this
// process.
func (s *store) space() (free, size int64, err error) {
	return disk.Space(filepath.Join(s.settings.Data, natsDir))
}

// stopped returns why the NATS server inside this process has stopped storing data, or nil.
func (s *store) stopped() error {
	if why := s.fault.Load(); why != nil {
		return *why
	}
	return nil
}

// startServer starts the NATS server inside this process. It may wait for the disk without limit.
func (s *store) startServer(ctx context.Context) error {
	o, err := s.serverOptions()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	start := func() (err error) { s.server, err = embedded.Start(o); return err }
	return startWhenWritable(ctx, start, s.diskWorks, func(why error) {
		s.logger.Error("this node starts as soon as its disk accepts writes", "error", why)
	})
}

// startWhenWritable calls the function start. If that fails with embedded.ErrStart, startWhenWritable
// waits until the disk works, and calls start again. Before it waits, it calls the function waits. If
// the disk works at once, it has perhaps just got space, so startWhenWritable tries once more.
func startWhenWritable(ctx context.Context, start func() error, works func() bool, waits func(why error)) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for again := false; ; again = true {
		err := start()
		if !errors.Is(err, embedded.ErrStart) {
			return err
		}
		if works() {
			if again {
				return err
			}
			continue
		}
		for waits(err); !works(); {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return err
			}
		}
	}
}

// tend starts a goroutine that restarts the NATS server inside this process when that is necessary.
// Without such a server, tend does nothing.
func (s *store) tend(work *sync.WaitGroup, stopping <-chan struct{}, failed failure) {
	if s.server == nil {
		return
	}
	work.Go(func() {
		if err := s.tendServer(stopping); err != nil {
			failed.report(err)
		}
	})
}

// tendServer restarts the NATS server inside this process after it has stopped storing data. That
// server stops for good when its disk refuses a write, for example because the disk is full. A
// restart cures it only if the disk accepts writes again, so tendServer waits for that. If the
// restart fails, the server hangs, or this node was removed from the cluster, tendServer returns an
// error, and the process must end. It returns nil when the channel stopping is closed.
func (s *store) tendServer(stopping <-chan struct{}) error {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	var last time.Time // when the server was last restarted
	for {
		select {
		case <-tick.C:
		case <-stopping:
			return nil
		}
		if s.isRemoved() {
			return s.errRemoved()
		}
		why := examine(s.server.Fault, tick.C, stopping)
		if why == errHangs {
			s.fault.Store(&why)
			return why
		}
		if why == nil {
			s.fault.Store(nil)
			continue
		}
		if s.fault.Swap(&why) == nil {
			s.logger.Error("the NATS server of this node has stopped storing data; it restarts as soon as its disk accepts writes", "error", why)
		}
		if time.Since(last) < restartEvery || !s.diskWorks() {
			continue
		}
		last = time.Now()
		if err := s.server.Restart(); err != nil {
			return fmt.Errorf("restart the NATS server: %w", err)
		}
		s.logger.Info("the NATS server of this node was restarted")
	}
}

// examine returns the result of the function fault. If that takes too long, it returns errHangs. It
// returns nil when the channel stopping is closed.
func examine(fault func() error, tick <-chan time.Time, stopping <-chan struct{}) error {
	answer := make(chan error, 1)
	go func() { answer <- fault() }()
	for range mostSilent {
		select {
		case why := <-answer:
			return why
		case <-stopping:
			return nil
		case <-tick:
		}
	}
	select {
	case why := <-answer:
		return why
	default:
		return errHangs
	}
}

// diskWorks reports whether the disk of the NATS server has space and accepts writes.
func (s *store) diskWorks() bool {
	free, size, err := s.space()
	return err == nil && free >= nodes.DiskReserve(size) && probe(disk.OS(s.settings.Data)) == nil
}
