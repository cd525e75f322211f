package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/access"
)

// reload is something beside the settings that SIGHUP re-reads, such as certificates.
type reload struct {
	what string // for the log
	read func() error
}

// reloadable are the settings that change without a restart.
var reloadable = []string{"log-level", "rate-anonymous", "rate-demo", "rate-live", "rate-test"}

// followHangups re-reads the configuration whenever SIGHUP comes, until the server stops.
func (svc *service) followHangups(hangups <-chan os.Signal) {
	running := svc.settings
	for {
		select {
		case <-hangups:
		case <-svc.stopping:
			return
		}
		failed := &svc.observer.failed // known before it is logged
		failed.Store(false)
		for _, r := range svc.reloads {
			if err := r.read(); err != nil {
				failed.Store(true)
				svc.logger.Error("not re-read, what was there stays", "what", r.what, "error", err)
			}
		}
		next, err := svc.reread(&running)
		if err != nil {
			failed.Store(true)
			svc.logger.Error("the configuration was not re-read, the old one stays", "error", access.Redacted(err.Error()))
		} else {
			running = next
		}
	}
}

// reread reads file and environment again, under the flags that were given at the start, and lets what may change while
// the server runs change. It returns the settings as they are in effect.
func (svc *service) reread(running *settings) (settings, error) {
	next, err := running.again()
	if err != nil {
		return settings{}, err
	}
	if err := svc.access.SetLimits(next.limits); err != nil {
		return settings{}, err
	}
	svc.settings.level.Set(levelOf(next.logLevel))
	changed, waiting := []string{}, []string{}
	next.given.VisitAll(func(f *pflag.Flag) {
		before := running
		if !slices.Contains(reloadable, f.Name) {
			before = &svc.settings // until it is restarted
		}
		switch old := before.given.Lookup(f.Name); {
		case old.Value.String() == f.Value.String():
		case slices.Contains(reloadable, f.Name):
			changed = append(changed, f.Name)
		default:
			waiting = append(waiting, f.Name)
		}
	})
	if len(waiting) > 0 {
		svc.logger.Warn("these settings changed and need a restart", "settings", strings.Join(waiting, " "))
	}
	svc.logger.Info("the configuration was re-read", "changed", strings.Join(changed, " "))
	return next, nil
}

// again loads settings with the same flags from the environment and the file of now.
func (s *settings) again() (settings, error) {
	var next settings
	c := &cobra.Command{}
	next.flags(c.Flags())
	var err error
	s.given.VisitAll(func(f *pflag.Flag) {
		if s.from.of(f.Name).kind != byFlag || err != nil || !isKey(f) && f.Name != configFlag {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			to := c.Flags().Lookup(f.Name)
			err, to.Changed = to.Value.(pflag.SliceValue).Replace(list.GetSlice()), true
		} else {
			err = c.Flags().Set(f.Name, f.Value.String())
		}
	})
	if err != nil {
		return next, fmt.Errorf("repeat the flags: %w", err)
	}
	next.given = c.Flags()
	if next.from, err = configure(c); err != nil {
		return next, err
	}
	return next, next.from.named(next.check())
}
