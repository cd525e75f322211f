package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"go.uber.org/zap"
)

// ACMEProtocol is what an authority speaks on a TLS listener to see who answers there.
const ACMEProtocol = acmez.ACMETLS1Protocol

// ACMEOptions say what certificates are wanted, and from whom.
type ACMEOptions struct {
	Dir       string   // where certificates and the account are kept
	Domains   []string // names of this server
	Email     string   // for the authority to write to; may be empty
	Directory string   // address of the authority's directory; empty: Let's Encrypt
	Root      string   // file with the certificates that the authority's own address is trusted by; empty: the system's
	Logger    *slog.Logger
}

// ACME gets certificates from an authority, and renews them. It answers the authority's questions on the listeners of this
// server: the one for TLS by Get, the one for clear text by Handler.
type ACME struct {
	domains []string
	config  *certmagic.Config
	cache   *certmagic.Cache
	issuer  *certmagic.ACMEIssuer
	ctx     context.Context
	cancel  context.CancelFunc
}

// NewACME prepares everything; nothing is asked for before Start.
func NewACME(o ACMEOptions) (*ACME, error) {
	var roots *x509.CertPool
	if o.Root != "" {
		text, err := os.ReadFile(o.Root)
		if err != nil {
			return nil, err
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", o.Root)
		}
	}
	if o.Directory == "" {
		o.Directory = certmagic.LetsEncryptProductionCA
	}
	logger := zap.New(core{o.Logger.Handler()})
	a := &ACME{domains: o.Domains}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		Logger:           logger,
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.config, nil },
	})
	a.config = certmagic.New(a.cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: o.Dir}, Logger: logger, OCSP: certmagic.OCSPConfig{DisableStapling: true},
		DefaultServerName: o.Domains[0], FallbackServerName: o.Domains[0], // for clients that name none, or an address
	})
	a.issuer = certmagic.NewACMEIssuer(a.config, certmagic.ACMEIssuer{
		CA: o.Directory, Email: o.Email, Agreed: true, TrustedRoots: roots, Logger: logger,
	})
	a.config.Issuers = []certmagic.Issuer{a.issuer}
	return a, nil
}

// Get is the certificate of a handshake, or the answer to the authority.
func (a *ACME) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.config.GetCertificate(hello)
}

// Handler answers the authority, and lets h answer everybody else.
func (a *ACME) Handler(h http.Handler) http.Handler { return a.issuer.HTTPChallengeHandler(h) }

// Start gets the certificates that are missing, and goes on until it has them, beside whatever else happens. It is told where
// this server listens, so that it opens no port of its own; without a clear text listener (empty), or with one on another host,
// where the authority cannot be expected to reach it, only TLS is used.
func (a *ACME) Start(plain, secure string) error {
	if err := a.reach(plain, secure); err != nil {
		return err
	}
	return a.config.ManageAsync(a.ctx, a.domains)
}

// reach tells the issuer where the authority finds this server.
func (a *ACME) reach(plain, secure string) error {
	host, port, err := split(secure)
	if err != nil {
		return err
	}
	a.issuer.ListenHost, a.issuer.AltTLSALPNPort = host, port
	a.issuer.DisableHTTPChallenge = true
	if plain != "" {
		at, port, err := split(plain)
		if err != nil {
			return err
		}
		a.issuer.AltHTTPPort, a.issuer.DisableHTTPChallenge = port, !same(at, host)
	}
	return nil
}

// same tells whether two listeners are on the same host. certmagic listens itself where it finds nobody, on the one host that it
// is told.
func same(a, b string) bool {
	x, y := net.ParseIP(a), net.ParseIP(b)
	return a == b || x.IsUnspecified() && y.IsUnspecified()
}

func split(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.Atoi(text)
	return host, port, err
}

// Close stops whatever is under way. A lock that it held would keep the next start waiting.
func (a *ACME) Close() {
	a.cancel()
	certmagic.CleanUpOwnLocks(context.Background(), a.config.Logger)
	a.cache.Stop()
}
