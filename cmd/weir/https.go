package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/idna"

	"weir/internal/certificate"
	"weir/internal/server"
)

// https are the flags of serve about TLS.
type https struct {
	address       string
	chosen        bool // by the operator
	cert, key     string
	acmeDomains   []string
	acmeEmail     string
	acmeDirectory string
	acmeRoot      string
}

const httpsFlag = "https"

func (h *https) flags(f *pflag.FlagSet) {
	f.StringVar(&h.address, httpsFlag, "127.0.0.1:8443", "`address` for HTTP/1.1, HTTP/2 and, on the same UDP port, HTTP/3; off to disable")
	f.StringVar(&h.cert, "tls-cert", "", "`file` with the certificate of --https and its chain; read again when it changes (default: by a local authority in the data directory)")
	f.StringVar(&h.key, "tls-key", "", "`file` with the key of --tls-cert (default: by a local authority in the data directory)")
	f.StringSliceVar(&h.acmeDomains, "acme-domain", nil, "`name` of this server to get a certificate for from an ACME authority; may be repeated")
	f.StringVar(&h.acmeEmail, "acme-email", "", "`address` that the ACME authority may write to")
	f.StringVar(&h.acmeDirectory, "acme-directory", "", "`URL` of the ACME authority's directory (default: Let's Encrypt)")
	f.StringVar(&h.acmeRoot, "acme-root", "", "`file` with the certificates that --acme-directory is trusted by (default: those of the system)")
}

var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// check refuses what cannot be, and names the flags.
func (h *https) check(must func(ok bool, format string, a ...any)) {
	own, acme := h.cert != "" || h.key != "", len(h.acmeDomains) > 0
	must(h.key != "" || h.cert == "", "--tls-cert without --tls-key")
	must(h.cert != "" || h.key == "", "--tls-key without --tls-cert")
	must(!own || !acme, "--tls-cert and --acme-domain: one certificate only")
	must(acme || h.acmeEmail == "", "--acme-email without --acme-domain")
	must(acme || h.acmeDirectory == "", "--acme-directory without --acme-domain")
	must(acme || h.acmeRoot == "", "--acme-root without --acme-domain")
	must(h.acmeEmail == "" || strings.Count(h.acmeEmail, "@") == 1, "--acme-email %q: not an address", h.acmeEmail)
	for i, d := range h.acmeDomains {
		h.acmeDomains[i] = strings.ToLower(d)
		must(!strings.HasPrefix(d, "*"), "--acme-domain %q: a wildcard cannot be had this way: name each host", d)
		must(strings.HasPrefix(d, "*") || hostName.MatchString(h.acmeDomains[i]), "--acme-domain %q: not a host name such as streams.example.com", d)
	}
	if h.acmeDirectory != "" {
		u, err := url.Parse(h.acmeDirectory)
		must(err == nil && u.Scheme == "https" && u.Host != "", "--acme-directory %q: not a https address", h.acmeDirectory)
	}
	if h.address == "off" {
		must(!own, "--tls-cert with --https off")
		must(!acme, "--acme-domain with --https off")
		return
	}
	_, _, err := net.SplitHostPort(h.address)
	must(err == nil, "--https %q: not HOST:PORT", h.address)
}

// certificates is where the certificate of HTTPS comes from: one of three.
type certificates struct {
	files     *certificate.Files
	authority *certificate.Authority
	acme      *certificate.ACME
}

// openCertificates finds the certificate, or prepares to get one. The base URL and the address are names of the server.
func openCertificates(h https, data, baseURL, address string, logger *slog.Logger) (c certificates, err error) {
	switch {
	case len(h.acmeDomains) > 0:
		c.acme, err = certificate.NewACME(certificate.ACMEOptions{
			Dir: filepath.Join(data, "tls", "acme"), Domains: h.acmeDomains, Email: h.acmeEmail, Directory: h.acmeDirectory,
			Root: h.acmeRoot, Logger: logger,
		})
		if err != nil {
			err = fmt.Errorf("--acme-root: %w", err)
		}
	case h.cert != "":
		if c.files, err = certificate.OpenFiles(h.cert, h.key, logger); err != nil {
			err = fmt.Errorf("--tls-cert: %w", err)
		}
	default:
		c.authority, err = certificate.OpenAuthority(filepath.Join(data, "tls"), serverNames(baseURL, address), logger)
	}
	return c, err
}

// asciiHost is a host as certificates and DNS have it; false when it can be none.
func asciiHost(host string) (string, bool) {
	if net.ParseIP(host) != nil {
		return host, true
	}
	ascii, err := idna.New(idna.MapForLookup(), idna.VerifyDNSLength(true), idna.StrictDomainName(false)).ToASCII(strings.TrimSuffix(host, "."))
	return ascii, err == nil
}

// serverNames are what clients may call this server.
func serverNames(baseURL, address string) []string {
	host, _ := os.Hostname()
	names := []string{host}
	if u, err := url.Parse(baseURL); err == nil {
		ascii, _ := asciiHost(u.Hostname())
		names = append(names, ascii)
	}
	at, _, _ := net.SplitHostPort(address)
	if !net.ParseIP(at).IsUnspecified() {
		return append(names, at)
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses { // those that stay; others change too often to be names
		if n, ok := a.(*net.IPNet); ok && n.IP.IsPrivate() {
			names = append(names, n.IP.String())
		}
	}
	return names
}

// tls is what the listener needs.
func (c certificates) tls(data string) (t server.TLS, err error) {
	switch {
	case c.acme != nil:
		t.GetCertificate, t.Protocols = c.acme.Get, []string{certificate.ACMEProtocol}
	case c.files != nil:
		t.GetCertificate = c.files.Get
	default:
		t.GetCertificate = c.authority.Get
	}
	t.ResetKey, err = certificate.Secret(filepath.Join(data, "tls", "quic.key"))
	return t, err
}

// handler answers an ACME authority, and lets h answer everybody else.
func (c certificates) handler(h http.Handler) http.Handler {
	if c.acme != nil {
		return c.acme.Handler(h)
	}
	return h
}

// start gets the certificates that are missing, beside everything else.
func (c certificates) start(s *server.Server) error {
	if c.acme != nil {
		return c.acme.Start(s.HTTP(), s.HTTPS())
	}
	return nil
}

// reload reads the operator's files again.
func (c certificates) reload() error {
	if c.files != nil {
		return c.files.Reload()
	}
	return nil
}

func (c certificates) close() {
	if c.acme != nil {
		c.acme.Close()
	}
}

// welcomeHTTPS is what the first start prints about HTTPS.
func (svc *service) welcomeHTTPS() string {
	at := svc.server.HTTPS()
	if at == "" {
		return ""
	}
	at = local("https", at)
	if svc.certs.authority == nil {
		return fmt.Sprintf("HTTP/2 and HTTP/3: %s\n", at)
	}
	return fmt.Sprintf(`HTTP/2 and HTTP/3: %[1]s
Its certificate is signed by an authority of its own, for those who trust it:

  curl -sS --http2 --cacert %[2]s %[1]s/v1/health

`, at, quoted(svc.certs.authority.Path))
}

// trusting is what curl must be told where links are signed by our own authority.
func (svc *service) trusting() string {
	if svc.certs.authority == nil || svc.url() != local("https", svc.server.HTTPS()) {
		return ""
	}
	return " --cacert " + quoted(svc.certs.authority.Path)
}
