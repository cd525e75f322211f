package settings

import (
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/net/idna"
)

// HTTPS holds the settings of HTTPS and its certificates.
type HTTPS struct {
	Address       string
	Cert, Key     string
	ACMEDomains   []string
	ACMEEmail     string
	ACMEDirectory string
	ACMERoot      string
}

func (h *HTTPS) flags(f *pflag.FlagSet) {
	f.StringVar(&h.Address, HTTPSFlag, "127.0.0.1:8443", "`address` for HTTP/1.1, HTTP/2 and, on the same UDP port, HTTP/3; off to disable")
	f.StringVar(&h.Cert, "tls-cert", "", "`file` holding the certificate chain for --https; re-read when it changes (default: from a local authority in the data directory)")
	f.StringVar(&h.Key, "tls-key", "", "`file` holding the private key of --tls-cert (default: from a local authority in the data directory)")
	f.StringSliceVar(&h.ACMEDomains, "acme-domain", nil, "host `name` of this server for which to get an ACME certificate; may be repeated")
	f.StringVar(&h.ACMEEmail, "acme-email", "", "contact `address` for the ACME authority")
	f.StringVar(&h.ACMEDirectory, "acme-directory", "", "directory `URL` of the ACME authority (default: Let's Encrypt)")
	f.StringVar(&h.ACMERoot, "acme-root", "", "`file` holding the certificates to trust for --acme-directory (default: the system's CA certificates)")
}

var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// check refuses invalid values and combinations. Each error names the flags.
func (h *HTTPS) check(must must) {
	own, acme := h.Cert != "" || h.Key != "", len(h.ACMEDomains) > 0
	must(h.Key != "" || h.Cert == "", "--tls-cert without --tls-key")
	must(h.Cert != "" || h.Key == "", "--tls-key without --tls-cert")
	must(!own || !acme, "--tls-cert and --acme-domain: choose one source of certificates")
	must(acme || h.ACMEEmail == "", "--acme-email without --acme-domain")
	must(acme || h.ACMEDirectory == "", "--acme-directory without --acme-domain")
	must(acme || h.ACMERoot == "", "--acme-root without --acme-domain")
	must(h.ACMEEmail == "" || strings.Count(h.ACMEEmail, "@") == 1, "--acme-email %q: not an email address", h.ACMEEmail)
	for i, d := range h.ACMEDomains {
		h.ACMEDomains[i] = strings.ToLower(d)
		must(!strings.HasPrefix(d, "*"), "--acme-domain %q: wildcards are not supported; name each host", d)
		must(strings.HasPrefix(d, "*") || hostName.MatchString(h.ACMEDomains[i]), "--acme-domain %q: not a host name such as streams.example.com", d)
	}
	if h.ACMEDirectory != "" {
		u, err := url.Parse(h.ACMEDirectory)
		must(err == nil && u.Scheme == "https" && u.Host != "", "--acme-directory %q: not an https address", h.ACMEDirectory)
	}
	if h.Address == "off" {
		must(!own, "--tls-cert with --https off")
		must(!acme, "--acme-domain with --https off")
		return
	}
	_, _, err := net.SplitHostPort(h.Address)
	must(err == nil, "--https %q: not HOST:PORT or off", h.Address)
}

// ASCIIHost returns a host name in the ASCII form that certificates and DNS use. It returns false
// if the string cannot be a host name.
func ASCIIHost(host string) (string, bool) {
	if net.ParseIP(host) != nil {
		return host, true
	}
	ascii, err := idna.New(idna.MapForLookup(), idna.VerifyDNSLength(true), idna.StrictDomainName(false)).ToASCII(strings.TrimSuffix(host, "."))
	return ascii, err == nil
}
