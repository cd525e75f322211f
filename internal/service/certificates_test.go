package service

import (
	"log/slog"
	"testing"

	"weir/internal/settings"
)

// The server tells browsers to use only HTTPS (HSTS) if every browser trusts its certificate. It
// does not do so with a certificate of the local authority, because afterwards a browser that does
// not know this authority could not open the pages at all.
func TestStrictTransport(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		strict bool
	}{
		"ACME":            {[]string{"--acme-domain", "weir.example.com"}, true},
		"local authority": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := settings.Parse(append(c.args, "--data", t.TempDir())...)
			if err != nil {
				t.Fatal(err)
			}
			certs, err := openCertificates(s, "127.0.0.1:8443", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer certs.close()
			secure, err := certs.tls(s.Data)
			if err != nil || secure.Strict != c.strict {
				t.Errorf("strict is %v, %v; want %v", secure.Strict, err, c.strict)
			}
		})
	}
}
