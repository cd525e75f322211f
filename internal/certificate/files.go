// Package certificate provides the certificates for HTTPS: from files of the operator, from a local
// certificate authority (CA), or from an ACME CA. Of the other packages of Weir it uses only
// package disk. It uses HTTP only to answer the ACME challenge.
package certificate

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookEvery is the minimum time between two handshakes that check the files for changes.
const lookEvery = time.Second

// Files is a certificate and its key in two files. A handshake reads them again if they have
// changed, so there is no background goroutine to stop. New files that cannot be used leave the
// current certificate in place: tools that renew certificates write the two files one after the
// other, and a handshake in between sees a pair that does not match. Files is safe for concurrent
// use.
type Files struct {
	cert, key string
	logger    *slog.Logger
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2][]byte // content at the last check, usable or not
	looked  time.Time
}

// OpenFiles reads a certificate with its chain, and its key. Files that cannot be used are an
// error; an expired certificate is only logged.
func OpenFiles(cert, key string, logger *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, logger: logger, now: time.Now}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	f.looked = f.now()
	if end := f.current.Leaf.NotAfter; end.Before(f.looked) {
		logger.Warn("certificate expired", "file", cert, "ended", end)
	}
	return f, nil
}

// Get returns the certificate for a handshake. It is meant for tls.Config.GetCertificate and
// ignores its argument.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		f.reload()
	}
	return f.current, nil
}

// Reload reads the files immediately. If they cannot be used, it returns an error and the current
// certificate stays.
func (f *Files) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = f.now()
	return f.reload()
}

// reload does the work of Reload. It logs each change of the files once. Called with f.mu held.
func (f *Files) reload() error {
	changed, err := f.read()
	switch {
	case err != nil && changed:
		f.logger.Warn("kept the current certificate: the changed files cannot be used", "error", err)
	case err == nil && changed:
		f.logger.Info("certificate changed", "file", f.cert, "ends", f.current.Leaf.NotAfter)
	}
	return err
}

// read reads the files and replaces the current certificate if they have changed. It reports
// whether the content, or the error from reading it, differs from the last time.
func (f *Files) read() (changed bool, err error) {
	var got [2][]byte
	for i, name := range []string{f.cert, f.key} {
		if got[i], err = os.ReadFile(name); err != nil {
			got[i] = []byte(err.Error())
			break
		}
	}
	changed = !bytes.Equal(got[0], f.seen[0]) || !bytes.Equal(got[1], f.seen[1])
	f.seen = got
	if err != nil {
		return changed, err // the error names the file
	}
	pair, err := tls.X509KeyPair(got[0], got[1])
	if err != nil {
		return changed, fmt.Errorf("read certificate %s with key %s: %w", f.cert, f.key, err)
	}
	if changed {
		f.current = &pair
	}
	return changed, nil
}
