package service

import (
	"context"
	"os"
	"sync"
)

// StartUntil does the same as Start, but ends the start if a signal arrives: a node of a cluster may
// wait for the others for a minute. Then it stops what has been started, and returns nil and no error.
func StartUntil(ctx context.Context, stop <-chan os.Signal, o Options) (*Service, error) {
	ctx, cancel := context.WithCancel(ctx) // never cancelled after a start that succeeds
	started, interrupted := make(chan struct{}), false
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case sig := <-stop:
			o.Logger.Info("stopping during the start", "signal", sig.String())
			interrupted = true
			cancel()
		case <-started:
		}
	})
	svc, err := Start(ctx, o)
	close(started)
	watch.Wait()
	if !interrupted {
		return svc, err
	}
	if err == nil {
		err = svc.Stop(o.Settings.ShutdownGrace)
	} else {
		err = nil // the start was cut off
	}
	o.Logger.Info("stopped")
	return nil, err
}
