package trials

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// domain is a name that only the name server of this test resolves.
const domain = "streams.weir.test"

// The server gets a certificate from an ACME authority, which sends its challenge to the TLS
// listener or to the cleartext listener. The server uses the certificate for HTTP/2 and HTTP/3. It
// still has the certificate after a restart, even if the authority is down. The authority is the
// program pebble on this machine.
func TestACME(t *testing.T) {
	t.Parallel()
	program := tool(t, "pebble")
	for name, overTLS := range map[string]bool{"TLS": true, "HTTP": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, secure, unused := freePort(t), freePort(t), freePort(t)
			asked := secure
			flags := []string{"--https", local(secure), "--http", "off"}
			if !overTLS {
				asked, flags[3] = unused, local(plain)
			}
			p := startPebble(t, program, plain, asked)
			flags = append(flags, "--demo=false", "--acme-domain", domain, "--acme-email", "ops@weir.test", "--acme-directory", p.directory, "--acme-root", p.trust)
			data := t.TempDir()
			s := serve(t, data, flags...)
			served := awaitCertificate(t, s, local(secure))
			roots := p.roots(t)
			for _, proto := range []string{"HTTP/2.0", "HTTP/3.0"} {
				resp, err := namedClient(t, proto, roots, local(secure)).Get("https://" + domain + "/v1/health")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != 200 || resp.Proto != proto {
					t.Errorf("got %d over %s, want 200 over %s", resp.StatusCode, resp.Proto, proto)
				}
			}
			s.stop(t)
			p.kill()
			s = serve(t, data, flags...)
			if again := awaitCertificate(t, s, local(secure)); !again.Equal(served) {
				t.Error("the server has another certificate after the restart")
			}
		})
	}
}

// namedClient creates a client that trusts these authorities and resolves every name to one
// address.
func namedClient(t *testing.T, proto string, trust *x509.CertPool, at string) *http.Client {
	if proto == "HTTP/3.0" {
		tr := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, Dial: func(ctx context.Context, _ string, c *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return quic.DialAddrEarly(ctx, at, c, q)
		}}
		t.Cleanup(func() { tr.Close() })
		return &http.Client{Transport: tr, Timeout: time.Minute}
	}
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trust}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// awaitCertificate waits until the server has a certificate for its domain, and returns it.
func awaitCertificate(t *testing.T, s *server, at string) *x509.Certificate {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		c, err := tls.Dial("tcp", at, &tls.Config{ServerName: domain, InsecureSkipVerify: true})
		if err == nil {
			defer c.Close()
			return c.ConnectionState().PeerCertificates[0]
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatalf("no certificate within a minute: %v\n%s", err, s.logged())
		}
	}
}

// pebble is an ACME authority for tests, with a name server that resolves every name to this
// machine.
type pebble struct {
	directory string
	trust     string // file with the certificate of pebble's own HTTPS address
	admin     string
	client    *http.Client
	cmd       *exec.Cmd
	exited    chan struct{}
}

func (p *pebble) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// startPebble starts an authority that sends its challenges to these ports.
func startPebble(t *testing.T, program string, httpPort, tlsPort int) *pebble {
	t.Helper()
	at, admin := local(freePort(t)), local(freePort(t))
	cert, key := selfSigned(t)
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM([]byte(cert))
	p := &pebble{directory: "https://" + at + "/dir", admin: "https://" + admin, exited: make(chan struct{}), trust: writeFile(t, "cert.pem", cert)}
	config := fmt.Sprintf(`{"pebble":{"listenAddress":%q,"managementListenAddress":%q,"certificate":%q,"privateKey":%q,"httpPort":%d,"tlsPort":%d,
		"profiles":{"default":{"description":"all","validityPeriod":7776000}}}}`, at, admin, p.trust, writeFile(t, "key.pem", key), httpPort, tlsPort)
	p.cmd = exec.Command(program, "-strict=false", "-config", writeFile(t, "config.json", config), "-dnsserver", nameServer(t))
	p.cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0")
	var log bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &log, &log
	tie(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(p.kill)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}
	t.Cleanup(tr.CloseIdleConnections)
	p.client = &http.Client{Transport: tr, Timeout: time.Minute}
	deadline := time.After(time.Minute)
	for {
		resp, err := p.client.Get(p.directory)
		if err == nil {
			resp.Body.Close()
			return p
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.exited:
			t.Fatalf("pebble exited:\n%s", &log)
		case <-deadline:
			t.Fatalf("pebble did not answer within a minute: %v", err)
		}
	}
}

// roots returns the root certificate that verifies the certificates issued by pebble.
func (p *pebble) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	resp, err := p.client.Get(p.admin + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatalf("get the root certificate: %v in %s", err, text)
	}
	return pool
}

// selfSigned creates a self-signed certificate for 127.0.0.1.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// nameServer starts a DNS server that resolves every name to 127.0.0.1. It uses TCP, where each DNS
// message begins with its length.
func nameServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() { l.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				for {
					var length [2]byte
					if _, err := io.ReadFull(c, length[:]); err != nil {
						return
					}
					query := make([]byte, int(length[0])<<8|int(length[1]))
					if _, err := io.ReadFull(c, query); err != nil {
						return
					}
					answer := resolved(query)
					c.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...))
				}
			})
		}
	})
	return l.Addr().String()
}

// resolved returns the answer to a DNS query. If the query asks for an IPv4 address, the answer is
// 127.0.0.1. Otherwise the answer has no records.
func resolved(query []byte) []byte {
	const header = 12
	end := bytes.IndexByte(query[min(len(query), header):], 0)
	if end < 0 || len(query) < header+end+5 {
		return nil
	}
	end += header + 5 // includes the last byte of the name, the type and the class
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[header:end]...)
	if query[end-3] == 1 && query[end-4] == 0 {
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1)
	}
	return answer
}
