package contract

import (
	"crypto/x509"
	"flag"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

var (
	slow = flag.Bool("contract.slow", false, "run cases that take longer than a minute")

	deployment = flag.String("contract.url", "", "base URL of the server to check")
	live       = flag.String("contract.live", "", "live key of the server")
	otherLive  = flag.String("contract.other", "", "live key of another project")
	test       = flag.String("contract.test", "", "test key of the live key's project")
	data       = flag.String("contract.data", "", "data directory of a server on this machine, to create and revoke keys")
	by         = flag.String("contract.by", "HTTP1", "transport: HTTP1 or H2C in clear text; HTTP1TLS, HTTP2 or HTTP3 over TLS")
	ca         = flag.String("contract.ca", "", "file of certificate authorities to trust instead of the system's")
	demo       = flag.Bool("contract.demo", true, "whether the server runs the demo stream")
	doc        = flag.String("contract.doc", "", "prefix of doc_url, if it is not the base URL")
	grace      = flag.Duration("contract.gap-grace", 2*time.Second, "--gap-grace of the server")
)

// TestDeployment runs the suite against a server that is already running. docs/conformance.md
// explains how to use it.
func TestDeployment(t *testing.T) {
	if *deployment == "" {
		t.Skip("no -contract.url")
	}
	target := Target{BaseURL: *deployment, Live: *live, OtherLive: *otherLive, Test: *test, Demo: *demo, GapGrace: *grace, DocBase: *doc, Slow: *slow}
	way := slices.IndexFunc(Transports, func(w Transport) bool { return w.Name == *by })
	if way < 0 {
		t.Fatalf("-contract.by %s: unknown transport", *by)
	}
	var trust *x509.CertPool
	if *ca != "" {
		text, err := os.ReadFile(*ca)
		trust = x509.NewCertPool()
		if err != nil || !trust.AppendCertsFromPEM(text) {
			t.Fatalf("-contract.ca %s: no certificate found: %v", *ca, err)
		}
	}
	target.Client = func() *http.Client { return Transports[way].Client(trust) }
	if *data != "" {
		binary, err := Build(t.TempDir(), false)
		if err != nil {
			t.Fatal(err)
		}
		target.NewKey, target.NewToken = KeysOf(binary, *data), TokensOf(binary, *data)
	}
	Run(t, target)
}
