package faultnet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// gateway is the HTTP part of a proxy. It treats requests like an ingress, a content delivery
// network or a captive portal does.
type gateway struct {
	p       *Proxy
	backend http.RoundTripper
	forward *httputil.ReverseProxy
}

// startGateway starts the HTTP server of a gateway. It returns a function that connects to this
// server.
func (p *Proxy) startGateway() (dial func() (net.Conn, error), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var front, back http.Protocols
	front.SetHTTP1(true)
	front.SetHTTP2(!p.o.HTTP1 && p.o.TLS != nil)
	front.SetUnencryptedHTTP2(!p.o.HTTP1 && p.o.TLS == nil)
	back.SetHTTP1(true)
	backend := &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return p.dial() },
		MaxIdleConnsPerHost: 100, Protocols: &back, DisableCompression: true,
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	g := &gateway{p: p, backend: backend}
	g.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "backend"}) },
		Transport:     backend,
		FlushInterval: -1, // flush at once, because events of a subscription must not wait
		ErrorLog:      quiet,
	}
	server := &http.Server{Handler: g, Protocols: &front, ErrorLog: quiet, TLSConfig: p.o.TLS.Clone()}
	p.work.Go(func() {
		if p.o.TLS != nil {
			server.ServeTLS(l, "", "")
		} else {
			server.Serve(l)
		}
	})
	p.close = append(p.close, func() { server.Close(); backend.CloseIdleConnections() })
	return func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }, nil
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now, _ := g.p.conditions()
	switch {
	case now.Answer != 0:
		answer(w, r, now.Answer)
	case now.Duplicate && r.Method == "POST":
		g.sendTwice(w, r)
	default:
		g.forward.ServeHTTP(w, r)
	}
}

// answer writes a response that does not come from Weir.
func answer(w http.ResponseWriter, r *http.Request, status int) {
	io.Copy(io.Discard, r.Body)
	text := "<html><title>" + http.StatusText(status) + "</title></html>"
	w.Header().Set("Content-Type", "text/html")
	switch status {
	case http.StatusOK:
		w.Header().Set("Content-Type", "application/json")
		text = `{"status":"ok"}`
	case http.StatusFound:
		w.Header().Set("Location", "http://portal.example/login")
	}
	w.WriteHeader(status)
	io.WriteString(w, text)
}

// sendTwice sends a request to the backend two times and returns the second response. A real proxy
// does the same if it has lost the first response.
func (g *gateway) sendTwice(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	clone := func() *http.Request {
		c := r.Clone(r.Context())
		c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return c
	}
	first := clone()
	first.URL.Scheme, first.URL.Host, first.RequestURI = "http", "backend", ""
	first.Header.Del("Connection")
	if resp, err := g.backend.RoundTrip(first); err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	g.forward.ServeHTTP(w, clone())
}

// Certificate creates a certificate for 127.0.0.1. It returns the TLS configuration of a gateway
// that uses the certificate, and the pool with which a client trusts it.
func Certificate() (*tls.Config, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool, nil
}
