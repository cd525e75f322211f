package service

import (
	"os"
	"strings"

	"weir/internal/access"
	"weir/internal/settings"
)

// reload is something that SIGHUP re-reads besides the settings, such as certificates.
type reload struct {
	what string // name for the log
	read func() error
}

// FollowHangups starts a goroutine that re-reads the configuration at every signal until the
// service stops.
func (svc *Service) FollowHangups(hangups <-chan os.Signal) {
	svc.work.Go(func() { svc.followHangups(hangups) })
}

func (svc *Service) followHangups(hangups <-chan os.Signal) {
	running := svc.settings
	for {
		select {
		case <-hangups:
		case <-svc.stopping:
			return
		}
		failed := &svc.observer.failed // set before the log line is written, so that the metrics already show a failure that the log reports
		failed.Store(false)
		for _, r := range svc.reloads {
			if err := r.read(); err != nil {
				failed.Store(true)
				svc.logger.Error("re-reading failed, keeping what was loaded before", "what", r.what, "error", err)
			}
		}
		next, err := svc.reread(running)
		if err != nil {
			failed.Store(true)
			svc.logger.Error("re-reading the configuration failed, keeping the old one", "error", access.Redacted(err.Error()))
		} else {
			running = next
		}
	}
}

// reread reads the configuration file and the environment again, together with the flags from the
// start. It applies the settings that may change while the server is running, and returns the
// settings that are then in effect.
func (svc *Service) reread(running *settings.Settings) (*settings.Settings, error) {
	next, err := running.Reread()
	if err != nil {
		return nil, err
	}
	if err := svc.Access.SetLimits(next.Limits); err != nil {
		return nil, err
	}
	next.UseLogLevel()
	changed, waiting := next.Changes(running, svc.settings)
	if len(waiting) > 0 {
		svc.logger.Warn("these settings changed and need a restart", "settings", strings.Join(waiting, " "))
	}
	svc.logger.Info("re-read the configuration", "changed", strings.Join(changed, " "))
	return next, nil
}
