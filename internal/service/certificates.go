package service

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"weir/internal/certificate"
	"weir/internal/server"
	"weir/internal/settings"
)

// certificates is the source of the certificate for HTTPS. One of its three fields is set, or none
// if HTTPS is off.
type certificates struct {
	files     *certificate.Files
	authority *certificate.Authority
	acme      *certificate.ACME
}

// secure opens the certificates if the server listens for HTTPS.
func (svc *Service) secure() (server.TLS, error) {
	at := svc.server.HTTPS()
	if at == "" {
		return server.TLS{}, nil
	}
	var err error
	if svc.certs, err = openCertificates(svc.settings, at, svc.logger); err != nil {
		return server.TLS{}, err
	}
	svc.reloads = append(svc.reloads, reload{"certificates", svc.certs.reload})
	return svc.certs.tls(svc.settings.Data)
}

// openCertificates loads the certificate, prepares to get one from an ACME authority, or opens the
// local authority. A certificate of the local authority is valid for the names that serverNames
// returns.
func openCertificates(s *settings.Settings, address string, logger *slog.Logger) (c certificates, err error) {
	h := s.HTTPS
	switch {
	case len(h.ACMEDomains) > 0:
		c.acme, err = certificate.NewACME(certificate.ACMEOptions{
			Dir: filepath.Join(s.Data, "tls", "acme"), Domains: h.ACMEDomains, Email: h.ACMEEmail, Directory: h.ACMEDirectory,
			Root: h.ACMERoot, Logger: logger,
		})
		if err != nil {
			err = fmt.Errorf("--acme-root: %w", err)
		}
	case h.Cert != "":
		if c.files, err = certificate.OpenFiles(h.Cert, h.Key, logger); err != nil {
			err = fmt.Errorf("--tls-cert: %w", err)
		}
	default:
		c.authority, err = certificate.OpenAuthority(filepath.Join(s.Data, "tls"), serverNames(s.BaseURL, address), logger)
	}
	return c, err
}

// serverNames returns the names and addresses by which clients may reach this server.
func serverNames(baseURL, address string) []string {
	host, _ := os.Hostname()
	names := []string{host}
	if u, err := url.Parse(baseURL); err == nil {
		ascii, _ := settings.ASCIIHost(u.Hostname())
		names = append(names, ascii)
	}
	at, _, _ := net.SplitHostPort(address)
	if !net.ParseIP(at).IsUnspecified() {
		return append(names, at)
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses { // only private addresses, because public ones change too often
		if n, ok := a.(*net.IPNet); ok && n.IP.IsPrivate() {
			names = append(names, n.IP.String())
		}
	}
	return names
}

// tls returns the TLS settings of the listener.
func (c certificates) tls(data string) (t server.TLS, err error) {
	switch {
	case c.acme != nil:
		t.GetCertificate, t.Protocols, t.Strict = c.acme.Get, []string{certificate.ACMEProtocol}, true
	case c.files != nil:
		t.GetCertificate, t.Strict = c.files.Get, true
	default:
		t.GetCertificate = c.authority.Get
	}
	t.ResetKey, err = certificate.Secret(filepath.Join(data, "tls", "quic.key"))
	return t, err
}

// handler answers the challenges of an ACME authority and passes all other requests to h.
func (c certificates) handler(h http.Handler) http.Handler {
	if c.acme != nil {
		return c.acme.Handler(h)
	}
	return h
}

// start begins to fetch missing certificates in the background.
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
