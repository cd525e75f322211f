package service

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"weir"
	"weir/internal/access"
	"weir/internal/dashboard"
	"weir/internal/hub"
	"weir/internal/settings"
)

// firstStart holds what the first start created. It is shown once.
type firstStart struct {
	key    string
	stream weir.StreamID
}

const firstProject = "default"

// isFirst reports whether no earlier start has created the first key.
func (svc *Service) isFirst() bool {
	p, ok := svc.Access.ProjectNamed(firstProject)
	return !ok || len(svc.Access.Keys(p.ID)) == 0
}

// makeFirst creates the first project, its stream and its key. It creates the key last, because
// isFirst looks for the key: if a start fails before the key exists, the next start calls makeFirst
// again.
func (svc *Service) makeFirst(ctx context.Context) error {
	p, err := svc.Access.EnsureProject(ctx, firstProject)
	if err != nil {
		return err
	}
	s, err := svc.Hub.Create(ctx, hub.Spec{
		Project: p.ID, Name: "first", RetentionSeconds: weir.DefaultRetention, MaxBytes: weir.DefaultMaxBytes, Mode: weir.JSON,
	})
	if err != nil {
		return err
	}
	_, secret, err := svc.Access.CreateKey(ctx, access.KeySpec{Project: p.ID, Kind: access.Live, Name: "first"})
	if err != nil {
		return err
	}
	svc.first = &firstStart{secret.Reveal(), s.ID}
	return nil
}

// FirstStart is the file in the data directory that WelcomeFile writes.
const FirstStart = "first-start.txt"

// WelcomeFile is like Welcome, for an output w that other users may read later, such as the log of
// a service manager. It writes the text of Welcome to a file in the data directory, which only this
// user can read, and writes the path of this file to w. It appends to the file, because the
// operator may not have read the text of an earlier start.
func (svc *Service) WelcomeFile(w io.Writer) error {
	if svc.first == nil && svc.password == "" {
		return nil
	}
	path, err := filepath.Abs(filepath.Join(svc.settings.Data, FirstStart))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var text bytes.Buffer
	svc.Welcome(&text)
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	if _, err := f.Write(text.Bytes()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	fmt.Fprintf(w, `
Weir is running at %s
The file below has the secrets that this start created, and commands to try. Delete the file when
you have read it.

  %s

`, svc.URL(), path)
	return nil
}

// Welcome prints the key and the password that this start created, with commands to try. The first
// call prints them, and later calls print nothing. If this start created no secrets, Welcome prints
// nothing. No other user may read the output, so it must be a terminal or a private file. For other
// outputs use WelcomeFile.
func (svc *Service) Welcome(w io.Writer) {
	if svc.first != nil {
		fmt.Fprintf(w, `
Weir is running at %[1]s
%[6]sData directory: %[2]s

Created the project "default" with a stream and this key. The key is shown only once:

  %[3]s

Publish to the stream:

  curl -sS%[7]s -H 'Authorization: Bearer %[3]s' -H 'Content-Type: application/json' -d '{"events":["hello"]}' %[1]s/v1/streams/%[4]s/publish

Subscribe to it from its beginning:

  curl -sSN%[7]s -H 'Authorization: Bearer %[3]s' -H 'Accept: text/event-stream' '%[1]s/v1/streams/%[4]s?cursor=0'

Create more keys: %[8]s key create --project default --data %[5]s

`, svc.URL(), svc.settings.Data, svc.first.key, svc.first.stream, Quoted(svc.settings.Data), svc.welcomeHTTPS(), svc.trusting(), program())
		svc.first = nil
	}
	if svc.password != "" {
		fmt.Fprintf(w, `Dashboard: %s/dashboard
Sign in as %s with this password. It is shown only once:

  %s

`, cmp.Or(svc.office.url(), svc.URL()), dashboard.Account, svc.password)
		svc.password = ""
	}
}

// program returns the command with which this program was started. After make run this is a path,
// because the program is not in the shell's search path.
func program() string {
	if strings.ContainsRune(os.Args[0], os.PathSeparator) {
		return Quoted(os.Args[0])
	}
	return "weir"
}

// welcomeHTTPS returns the text that the first start prints about HTTPS.
func (svc *Service) welcomeHTTPS() string {
	at := svc.server.HTTPS()
	if at == "" {
		return ""
	}
	at = settings.LocalURL("https", at)
	if svc.certs.authority == nil {
		return fmt.Sprintf("HTTP/2 and HTTP/3: %s\n", at)
	}
	return fmt.Sprintf(`HTTP/2 and HTTP/3: %[1]s
HTTPS uses a local certificate authority. To trust it:

  curl -sS --http2 --cacert %[2]s %[1]s/v1/health

`, at, Quoted(svc.certs.authority.Path))
}

// trusting returns the option that curl needs to trust the local certificate authority. It is empty
// if the address that links start with does not use a certificate of this authority.
func (svc *Service) trusting() string {
	if svc.certs.authority == nil || svc.URL() != settings.LocalURL("https", svc.server.HTTPS()) {
		return ""
	}
	return " --cacert " + Quoted(svc.certs.authority.Path)
}

// Quoted returns a word as a shell needs it: in quotes, if it contains special characters.
func Quoted(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-", r)
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
