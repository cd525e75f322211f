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
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weir/internal/certificate"
)

// secureRequest sends a request over HTTP/2 with TLS. It trusts only the given certificate.
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

// writePair writes a certificate chain for 127.0.0.1 and its key.
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
