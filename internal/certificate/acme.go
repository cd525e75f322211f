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

// ACMEProtocol is the ALPN protocol with which an ACME CA checks that this server controls a
// domain. The TLS listener must offer it.
const ACMEProtocol = acmez.ACMETLS1Protocol

// ACMEOptions are the domains to get certificates for, and the CA to get them from.
type ACMEOptions struct {
	Dir       string   // directory for certificates and the account
	Domains   []string // domain names of this server; at least one
	Email     string   // contact address for the CA; may be empty
	Directory string   // directory URL of the CA; Let's Encrypt if empty
	Root      string   // file with root certificates to trust for Directory; the system's if empty
	Logger    *slog.Logger
}

// ACME gets certificates from an ACME CA and renews them. It answers the challenges of the CA on
// the listeners of this server: Get on the TLS listener, Handler on the cleartext one. It is safe
// for concurrent use.
type ACME struct {
	domains []string
	config  *certmagic.Config
	cache   *certmagic.Cache
	issuer  *certmagic.ACMEIssuer
	ctx     context.Context
	cancel  context.CancelFunc
}

// NewACME returns an ACME that has not contacted the CA and has created no files; Start does both.
func NewACME(o ACMEOptions) (*ACME, error) {
	var roots *x509.CertPool
	if o.Root != "" {
		text, err := os.ReadFile(o.Root)
		if err != nil {
			return nil, err
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read ACME root certificates: %s holds no PEM certificate", o.Root)
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
		// For clients that send no server name, or send an address instead.
		DefaultServerName: o.Domains[0], FallbackServerName: o.Domains[0],
	})
	a.issuer = certmagic.NewACMEIssuer(a.config, certmagic.ACMEIssuer{
		CA: o.Directory, Email: o.Email, Agreed: true, TrustedRoots: roots, Logger: logger,
	})
	a.config.Issuers = []certmagic.Issuer{a.issuer}
	return a, nil
}

// Get returns the certificate for a handshake, or the response to a challenge of the CA. It is
// meant for tls.Config.GetCertificate.
func (a *ACME) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.config.GetCertificate(hello)
}

// Handler answers HTTP challenges of the CA and passes all other requests to h.
func (a *ACME) Handler(h http.Handler) http.Handler { return a.issuer.HTTPChallengeHandler(h) }

// Start gets missing certificates in the background and retries until it has them, or until Close.
// The parameters plain and secure are the addresses of this server's cleartext and TLS listeners.
// With them, certmagic uses these listeners and opens no port of its own. HTTP challenges are
// disabled if plain is empty, or if the two listeners are on different hosts (see sameHost).
// Challenges over TLS are always enabled.
func (a *ACME) Start(plain, secure string) error {
	if err := a.reach(plain, secure); err != nil {
		return err
	}
	return a.config.ManageAsync(a.ctx, a.domains)
}

// reach sets the addresses at which the CA reaches this server.
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
		a.issuer.AltHTTPPort, a.issuer.DisableHTTPChallenge = port, !sameHost(at, host)
	}
	return nil
}

// sameHost reports whether two listeners are on the same host. certmagic takes only one host for
// both kinds of challenge, the host of the TLS listener. If the cleartext listener is on another
// host, certmagic would find no server at the cleartext port on the host of TLS, and would open a
// listener there itself. Therefore HTTP challenges are then disabled.
func sameHost(a, b string) bool {
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

// Close stops issuing and renewing. It removes the locks of this process, because a lock left in
// Dir would make the next start wait.
func (a *ACME) Close() {
	a.cancel()
	certmagic.CleanUpOwnLocks(context.Background(), a.config.Logger)
	a.cache.Stop()
}
