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
	slow = flag.Bool("contract.slow", false, "also run what takes longer than a minute")

	deployment = flag.String("contract.url", "", "address of a deployment to check (TestDeployment)")
	live       = flag.String("contract.live", "", "its live key")
	otherLive  = flag.String("contract.other", "", "its live key of another project")
	test       = flag.String("contract.test", "", "its test key of the live key's project")
	data       = flag.String("contract.data", "", "its data directory, where it runs on this machine: to make and revoke keys")
	by         = flag.String("contract.by", "HTTP1", "how to speak to it: HTTP1 or H2C in clear text; HTTP1TLS, HTTP2 or HTTP3")
	ca         = flag.String("contract.ca", "", "file with the authorities to trust, when not those of the system")
	demo       = flag.Bool("contract.demo", true, "it has the demo")
	doc        = flag.String("contract.doc", "", "what its doc_url begins with, when not its address")
	grace      = flag.Duration("contract.gap-grace", 2*time.Second, "its --gap-grace")
)

// TestDeployment checks a server that runs somewhere; docs/conformance.md says how.
func TestDeployment(t *testing.T) {
	if *deployment == "" {
		t.Skip("no -contract.url")
	}
	target := Target{BaseURL: *deployment, Live: *live, OtherLive: *otherLive, Test: *test, Demo: *demo, GapGrace: *grace, DocBase: *doc, Slow: *slow}
	way := slices.IndexFunc(Transports, func(w Transport) bool { return w.Name == *by })
	if way < 0 {
		t.Fatalf("-contract.by %s: no such way", *by)
	}
	var trust *x509.CertPool
	if *ca != "" {
		text, err := os.ReadFile(*ca)
		trust = x509.NewCertPool()
		if err != nil || !trust.AppendCertsFromPEM(text) {
			t.Fatalf("-contract.ca %s holds no certificate: %v", *ca, err)
		}
	}
	target.Client = func() *http.Client { return Transports[way].Client(trust) }
	if *data != "" {
		binary, err := Build(t.TempDir(), false)
		if err != nil {
			t.Fatal(err)
		}
		target.NewKey = KeysOf(binary, *data)
	}
	Run(t, target)
}
