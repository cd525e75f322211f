package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weir"
	"weir/clients/js"
	"weir/internal/dashboard"
	"weir/internal/disk"
	"weir/internal/engine"
)

const passwordFileFlag = "admin-password-file"

func passwordFlag(f *pflag.FlagSet, file *string) {
	f.StringVar(file, passwordFileFlag, "", "`file` with the password of the dashboard's admin account (default: the first start makes one and prints it once)")
}

// pages is the dashboard of a running server.
type pages struct {
	dashboard *dashboard.Dashboard // nil: there is none yet
	password  string               // that was made just now, and was not shown yet
}

// openPages opens the dashboard, and sees to it that somebody can sign in: with the password of the file, with the one of an
// earlier start, or with one that is made now and printed once.
func (svc *service) openPages(b build) error {
	ctx := context.Background()
	d, err := dashboard.Open(ctx, dashboard.Options{
		Documents: svc.engine, Hub: svc.hub, Access: svc.access, API: svc.api, Client: js.Modules(), Node: svc.store.node, BaseURL: svc.url(), Curl: svc.trusting(),
		Version: b.Version, Commit: b.Commit, Started: time.Now(), Store: svc.storeFigures, Cluster: svc.store.clusterLine, Health: svc.health, Logger: svc.logger,
		Writes: func() bool { return svc.engine.Status().State == engine.Ready },
	})
	if err != nil {
		return err
	}
	svc.pages.dashboard = d
	if svc.settings.passwordFile != "" {
		svc.reloads = append(svc.reloads, reload{"the password of the dashboard", svc.readPassword})
		return svc.readPassword()
	}
	if d.HasPassword() {
		return nil
	}
	if svc.pages.password, err = d.MakePassword(ctx); err != nil {
		svc.logger.Warn("nobody can sign in to the dashboard: its password was not stored", "error", err)
	}
	return nil
}

// checkPassword looks at the file before anything is made that is shown only once.
func (s *settings) checkPassword() error {
	if s.passwordFile == "" {
		return nil
	}
	password, err := passwordIn(s.passwordFile)
	if err == nil {
		err = dashboard.CheckPassword(password)
	}
	return s.ofPasswordFile(err)
}

// readPassword has the password be the one in the file.
func (svc *service) readPassword() error {
	password, err := passwordIn(svc.settings.passwordFile)
	if err == nil {
		err = svc.pages.dashboard.UsePassword(context.Background(), password)
	}
	return svc.settings.ofPasswordFile(err)
}

// ofPasswordFile names where the file was named.
func (s *settings) ofPasswordFile(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*weir.Error](err); ok {
		err = fmt.Errorf("%s: %s", s.passwordFile, known.Message) // its code is for programs
	}
	return fmt.Errorf("%s: %w", s.from.of(passwordFileFlag).of(passwordFileFlag), err)
}

// passwordIn reads a password: the only line of a file.
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

// storeFigures is how the store stands, for the dashboard.
func (svc *service) storeFigures() dashboard.Store {
	s := svc.store.figures()
	free, size, err := disk.Space(svc.settings.data)
	if err != nil {
		free, size = 0, 0
	}
	return dashboard.Store{Syncs: s.Syncs, Journal: s.Disk, Live: s.Live, Free: free, Size: size}
}

// handler leads to the dashboard what is its own, and everything else to the interface.
func (p *pages) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dashboard.Serves(r.URL.Path) {
			p.dashboard.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// note has the audit log tell of what was done by the command line.
func (p *pages) note(ctx context.Context, what, detail string) {
	p.dashboard.Note(ctx, "command line", what, detail)
}

// close stores what is left.
func (p *pages) close(ctx context.Context) {
	if p.dashboard != nil {
		p.dashboard.Close(ctx)
	}
}

// welcomePassword prints where the dashboard is and the password that was made for it, once.
func (svc *service) welcomePassword(w io.Writer) {
	if svc.pages.password == "" {
		return
	}
	fmt.Fprintf(w, `The dashboard is at %s/dashboard
Sign in as %s with this password. It is shown only now:

  %s

`, svc.url(), dashboard.Account, svc.pages.password)
	svc.pages.password = ""
}
