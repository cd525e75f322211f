// Package certificate is where the certificates of HTTPS come from: files of the operator, a local authority, or an ACME
// authority. It knows nothing of ours, and nothing of HTTP but the challenge of ACME.
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

// lookEvery is how often files are looked at again, at most, and only when there are handshakes.
const lookEvery = time.Second

// Files is a certificate and its key, in two files. They are read again when they have changed, by the handshake that
// comes after it: there is nothing to run beside.
type Files struct {
	cert, key string
	logger    *slog.Logger
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2][]byte // what the files held when they were read last, good or bad
	looked  time.Time
}

// OpenFiles reads a certificate, with its chain, and its key.
func OpenFiles(cert, key string, logger *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, logger: logger, now: time.Now}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	f.looked = f.now()
	if end := f.current.Leaf.NotAfter; end.Before(f.looked) {
		logger.Warn("the certificate is no longer valid", "file", cert, "ended", end)
	}
	return f, nil
}

// Get is the certificate of a handshake.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		f.reload()
	}
	return f.current, nil
}

// Reload looks at once whether the files have changed. When they cannot be used it says so, and the old ones stay.
func (f *Files) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = f.now()
	return f.reload()
}

// reload is Reload, with f.mu held. It tells the log once of every change.
func (f *Files) reload() error {
	changed, err := f.read()
	switch {
	case err != nil && changed:
		f.logger.Warn("the new certificate cannot be used, the old one stays", "error", err)
	case err == nil && changed:
		f.logger.Info("the certificate has changed", "file", f.cert, "ends", f.current.Leaf.NotAfter)
	}
	return err
}

// read takes what the files hold, and tells whether that is something else than the last time.
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
		return changed, err // names the file
	}
	pair, err := tls.X509KeyPair(got[0], got[1])
	if err != nil {
		return changed, fmt.Errorf("%s with the key %s: %w", f.cert, f.key, err)
	}
	if changed {
		f.current = &pair
	}
	return changed, nil
}
