package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/internal/certificate"
)

// secureRequest asks over HTTP/2, trusting one certificate only.
func secureRequest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: https TRUST URL PATH")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(ts.ReadFile(args[0]))) {
		ts.Fatalf("%s holds no certificate", args[0])
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	client := http.Client{Timeout: time.Minute, Transport: tr}
	resp, err := client.Get(args[1] + args[2])
	ts.Check(err)
	defer resp.Body.Close()
	fmt.Fprintf(ts.Stdout(), "%s %d\n", resp.Proto, resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(ts.Stdout(), "%s: %s\n", strings.ToLower(name), resp.Header.Get(name))
	}
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

func makePair(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keypair CERT KEY")
	}
	ts.Check(writePair(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
}

// writePair writes a certificate for 127.0.0.1, with its authority behind it, and its key.
func writePair(certPath, keyPath string) error {
	dir, err := os.MkdirTemp(filepath.Dir(certPath), "authority")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a, err := certificate.OpenAuthority(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	pair, err := a.Get(nil)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(a.Path)
	if err != nil {
		return err
	}
	cert := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), ca...)
	if err := os.WriteFile(certPath, cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)
}

// Only files of the operator can be read again; a pair that does not fit is an error, and the old one stays.
func TestReloadCertificates(t *testing.T) {
	dir := t.TempDir()
	h := https{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	if err := writePair(h.cert, h.key); err != nil {
		t.Fatal(err)
	}
	c, err := openCertificates(h, dir, "", "127.0.0.1:1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := c.files.Get(nil)
	if err := writePair(h.cert, filepath.Join(dir, "elsewhere.pem")); err != nil {
		t.Fatal(err)
	}
	if err := c.reload(); err == nil {
		t.Error("took a certificate without its key")
	}
	if now, _ := c.files.Get(nil); !now.Leaf.Equal(first.Leaf) {
		t.Error("the old certificate is gone")
	}
	if err := writePair(h.cert, h.key); err != nil {
		t.Fatal(err)
	}
	if err := c.reload(); err != nil {
		t.Error(err)
	}
	if now, _ := c.files.Get(nil); now.Leaf.Equal(first.Leaf) {
		t.Error("the new certificate is not served")
	}
	if err := (certificates{}).reload(); err != nil {
		t.Error(err)
	}
}

func TestASCIIHost(t *testing.T) {
	for host, want := range map[string]string{
		"streams.example.com": "streams.example.com", "Streams.Example.com.": "streams.example.com", "bücher.example": "xn--bcher-kva.example",
		"my_machine": "my_machine", "127.0.0.1": "127.0.0.1", "::1": "::1", "localhost": "localhost",
	} {
		if got, ok := asciiHost(host); !ok || got != want {
			t.Errorf("%s is %q, %v", host, got, ok)
		}
	}
	for _, host := range []string{"streams..example.com", ".example.com", "", strings.Repeat("a", 64)} {
		if got, ok := asciiHost(host); ok {
			t.Errorf("%s passes as %q", host, got)
		}
	}
}
