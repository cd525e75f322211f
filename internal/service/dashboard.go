package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"weir"
	"weir/internal/build"
	"weir/internal/dashboard"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/settings"
)

// openDashboard opens the dashboard and makes sure that the operator can sign in. The password
// comes from the password file or from an earlier start. Otherwise openDashboard makes one, which
// is printed once.
func (svc *Service) openDashboard(b build.Info) error {
	ctx := context.Background()
	now := svc.options.Now
	if clock := svc.store.clock(); clock != nil {
		now = clock // sessions must expire at the same time on all nodes
	}
	var err error
	svc.Dashboard, err = dashboard.Open(ctx, dashboard.Options{
		Documents: svc.engine, Hub: svc.Hub, Access: svc.Access, API: svc.API, Node: svc.store.node, BaseURL: svc.URL(), At: svc.office.url(), Curl: svc.trusting(),
		Version: b.Version, Commit: b.Commit, Now: now, Lease: svc.store.lease(),
		Troubles: func() []dashboard.Trouble { return svc.store.troubles(svc.engine.Status(), svc.store.lease()) },
		Store:    svc.storeFigures, Cluster: svc.store.clusterLine, Nodes: svc.store.nodesShown(), Health: svc.health, Logger: svc.logger,
		Writes: func() bool { return svc.engine.Status().State == engine.Ready },
	})
	if err != nil {
		return err
	}
	if svc.settings.PasswordFile != "" {
		svc.reloads = append(svc.reloads, reload{"the password of the dashboard", svc.readPassword})
		return svc.readPassword()
	}
	if svc.Dashboard.HasPassword() || svc.settings.Dashboard == settings.DashboardOff {
		return nil
	}
	svc.password, err = svc.Dashboard.MakePassword(ctx)
	switch {
	case err != nil && svc.password != "":
		svc.logger.Warn("the password of the dashboard may not have been stored; if it was not, the next start makes one", "error", err)
	case err != nil:
		svc.logger.Warn("signing in to the dashboard is impossible, because its password was not stored; the next start makes one", "error", err)
	}
	return nil
}

// checkPassword checks the password file. It runs first: a bad file must stop the start before the
// start creates secrets, because these are shown only once.
func (svc *Service) checkPassword() error {
	if svc.settings.PasswordFile == "" {
		return nil
	}
	password, err := passwordIn(svc.settings.PasswordFile)
	if err == nil {
		err = dashboard.CheckPassword(password)
	}
	return svc.ofPasswordFile(err)
}

// readPassword sets the dashboard's password to the one in the file.
func (svc *Service) readPassword() error {
	password, err := passwordIn(svc.settings.PasswordFile)
	if err == nil {
		err = svc.Dashboard.UsePassword(context.Background(), password)
	}
	return svc.ofPasswordFile(err)
}

// ofPasswordFile adds to an error the flag, variable or line in which the operator named the
// password file.
func (svc *Service) ofPasswordFile(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*weir.Error](err); ok {
		err = fmt.Errorf("%s: %s", svc.settings.PasswordFile, known.Message) // without the error code, which is meant for programs
	}
	return fmt.Errorf("%s: %w", svc.settings.Where(settings.PasswordFileFlag), err)
}

// passwordIn returns the password in a file. The file must have exactly one line.
func passwordIn(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if strings.ContainsAny(line, "\r\n") {
		return "", fmt.Errorf("%s has more than one line", file)
	}
	return line, nil
}

// storeFigures returns the figures of the store that the dashboard shows.
func (svc *Service) storeFigures() dashboard.Store {
	s := svc.store.figures()
	free, size, err := disk.Space(svc.settings.Data)
	if err != nil {
		free, size = 0, 0
	}
	figures := dashboard.Store{Syncs: s.Syncs, Journal: s.Disk, Live: s.Live, Free: free, Size: size}
	if svc.store.journal != nil && svc.settings.ScrubRate > 0 {
		figures.Scrub = &dashboard.Scrub{Done: s.Scrub.Done, Total: s.Scrub.Total, Finished: s.Scrub.Finished}
		for _, f := range s.Scrub.Findings {
			if f.Records > 0 {
				figures.Scrub.Damaged = append(figures.Scrub.Damaged, datadir.Found(&f))
			}
		}
	}
	return figures
}
