package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
)

// tcp is a listener for HTTP/1.1 and HTTP/2, in clear text or over TLS.
type tcp struct {
	http     *http.Server
	listener net.Listener
}

func newTCP(l net.Listener, logger *slog.Logger) *tcp {
	return &tcp{listener: l, http: &http.Server{
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, HTTP2: http2Bounds(),
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true, ConnState: boundBuffer,
	}}
}

// boundBuffer keeps the kernel from holding megabytes for a client that reads nothing.
func boundBuffer(c net.Conn, state http.ConnState) {
	if state != http.StateNew {
		return
	}
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if c, ok := c.(*net.TCPConn); ok {
		c.SetWriteBuffer(writeBuffer)
	}
}

func (t *tcp) addr() string {
	if t == nil {
		return ""
	}
	return t.listener.Addr().String()
}

// serve serves until shutdown; it returns what makes the listener fail.
func (t *tcp) serve(h http.Handler, secure *tls.Config) error {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(secure != nil)
	p.SetUnencryptedHTTP2(secure == nil)
	t.http.Handler, t.http.TLSConfig, t.http.Protocols = h, secure, &p
	var err error
	if secure != nil {
		err = t.http.ServeTLS(t.listener, "", "")
	} else {
		err = t.http.Serve(t.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// shutdown stops accepting and waits for requests in flight until the context ends; then it cuts them.
func (t *tcp) shutdown(ctx context.Context) error {
	err := t.http.Shutdown(ctx)
	if err != nil {
		t.http.Close()
	}
	t.listener.Close() // http.Server closes only what it serves
	return err
}
