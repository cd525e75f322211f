package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	authorityFile = "ca.pem"
	authorityKey  = "ca.key"

	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour
	renewAfter    = leafLife / 3 * 2
	skew          = time.Hour // clocks that are behind
)

// inside are the addresses that nobody else on the internet has, and "localhost" is the name. An authority that somebody
// trusts can speak for these and for the names it was made with, and for nobody else, even if its key were stolen.
var inside = []string{
	"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10",
	"::1/128", "fc00::/7", "fe80::/10",
}

// Authority signs the certificate of this server itself, so that there is HTTPS from the first start on. Whoever trusts
// its own certificate (Path) trusts the server. The server's certificate is made anew at every start, and before it ends.
type Authority struct {
	Path string // of the certificate to trust

	names  []string
	logger *slog.Logger
	now    func() time.Time
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey

	mu    sync.Mutex
	leaf  *tls.Certificate
	renew time.Time
}

// OpenAuthority reads the authority in a directory, or makes one. The names are those of the server: host names and
// addresses; empty ones and doubles do no harm.
func OpenAuthority(dir string, names []string, logger *slog.Logger) (*Authority, error) {
	return openAuthority(dir, names, logger, time.Now)
}

func openAuthority(dir string, names []string, logger *slog.Logger, now func() time.Time) (*Authority, error) {
	a := &Authority{Path: filepath.Join(dir, authorityFile), logger: logger, now: now}
	for _, n := range append([]string{"localhost", "127.0.0.1", "::1"}, names...) {
		n = strings.TrimSuffix(strings.ToLower(n), ".")
		switch {
		case n == "" || slices.Contains(a.names, n):
		case !isName(n):
			logger.Warn("this is neither a host name nor an address, so that certificates do not have it", "name", n)
		default:
			a.names = append(a.names, n)
		}
	}
	err := a.load(filepath.Join(dir, authorityKey))
	if errors.Is(err, fs.ErrNotExist) {
		err = a.create(dir)
	}
	if err != nil {
		return nil, err
	}
	if end := a.cert.NotAfter; !now().Before(end) {
		return nil, fmt.Errorf("the local authority %s ended on %s: remove it and %s, and a new one is made", a.Path, end.Format(time.DateOnly), authorityKey)
	}
	a.permitted()
	_, err = a.Get(nil)
	return a, err
}

var hostName = regexp.MustCompile(`^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$`)

// isName tells whether a certificate can have a name. One that it cannot have would make all of it worthless.
func isName(n string) bool { return net.ParseIP(n) != nil || len(n) <= 253 && hostName.MatchString(n) }

// load reads the two files; fs.ErrNotExist means that there is no authority. One without its key is an error: a new
// authority would not be the one that people trust.
func (a *Authority) load(keyPath string) error {
	text, err := os.ReadFile(a.Path)
	if err != nil {
		return err
	}
	keyText, err := os.ReadFile(keyPath)
	if err != nil {
		return fmt.Errorf("the local authority %s has lost its key: %v. Remove %[1]s too, and a new one is made", a.Path, err)
	}
	pair, err := tls.X509KeyPair(text, keyText)
	if err != nil {
		return fmt.Errorf("the local authority %s with the key %s: %w", a.Path, keyPath, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return fmt.Errorf("%s is no local authority of ours", a.Path)
	}
	a.cert, a.key = pair.Leaf, key
	return nil
}

// create makes an authority. Its key is written first: a key alone is one that nobody trusts yet.
func (a *Authority) create(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial := newSerial()
	host, _ := os.Hostname()
	t := &x509.Certificate{
		SerialNumber: serial, NotBefore: a.now().Add(-skew), NotAfter: a.now().Add(authorityLife),
		Subject: pkix.Name{Organization: []string{"Weir"}, CommonName: strings.TrimSpace("Weir local authority " + host + " " + hex.EncodeToString(serial.Bytes()[:4]))},
		IsCA:    true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, // it speaks for servers, and for nothing else
		PermittedDNSDomainsCritical: true,
	}
	for _, cidr := range inside {
		_, r, _ := net.ParseCIDR(cidr)
		t.PermittedIPRanges = append(t.PermittedIPRanges, r)
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip == nil {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, n)
		} else if !within(t.PermittedIPRanges, ip) {
			t.PermittedIPRanges = append(t.PermittedIPRanges, alone(ip))
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make a local authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der) // one that cannot be read is not written
	if err != nil {
		return fmt.Errorf("make a local authority: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a local authority: %w", err)
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
		mode       fs.FileMode
	}{{authorityKey, "PRIVATE KEY", keyDER, 0o600}, {authorityFile, "CERTIFICATE", der, 0o644}} {
		if err := replace(filepath.Join(dir, f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), f.mode); err != nil {
			return fmt.Errorf("make a local authority: %w", err)
		}
	}
	a.key, a.cert = key, cert
	return nil
}

// permitted keeps the names that the authority may speak for: others would make the whole certificate worthless.
func (a *Authority) permitted() {
	var kept []string
	for _, n := range a.names {
		ip := net.ParseIP(n)
		ok := ip != nil && within(a.cert.PermittedIPRanges, ip)
		for _, d := range a.cert.PermittedDNSDomains {
			ok = ok || ip == nil && (n == d || strings.HasSuffix(n, "."+d))
		}
		if ok {
			kept = append(kept, n)
			continue
		}
		a.logger.Warn("the local authority was made without this name, so that its certificates do not have it: "+
			"remove its files to have a new one made, which must then be trusted again", "name", n, "file", a.Path)
	}
	a.names = kept
}

// Get is the certificate of a handshake, made anew when two thirds of its time are over.
func (a *Authority) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.leaf != nil && now.Before(a.renew) {
		return a.leaf, nil
	}
	leaf, err := a.sign(now)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	a.leaf, a.renew = leaf, now.Add(renewAfter)
	return leaf, nil
}

func (a *Authority) sign(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	end := now.Add(leafLife)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(), NotBefore: now.Add(-skew), NotAfter: end,
		Subject:  pkix.Name{Organization: []string{"Weir"}, CommonName: "localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, n := range a.names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
