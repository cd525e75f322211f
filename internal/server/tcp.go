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
	http        *http.Server
	listener    net.Listener
	quick       *quick // serves simple requests without net/http; nil over TLS
	connections *connections
	logger      *slog.Logger
}

func newTCP(l net.Listener, c *connections, logger *slog.Logger) *tcp {
	return &tcp{listener: l, connections: c, logger: logger, http: &http.Server{
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: libraryHeaderBytes, HTTP2: http2Bounds(),
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
		ConnContext: withPlace, ConnState: watch,
	}}
}

func (t *tcp) addr() string {
	if t == nil {
		return ""
	}
	return t.listener.Addr().String()
}

// serve configures the listener and returns a function that serves until shutdown. That function
// returns an error if the listener fails, and nil after shutdown. The caller runs it in a
// goroutine. serve itself has then already set all fields, so that shutdown can read them in
// another goroutine.
func (t *tcp) serve(h, oversized http.Handler, secure *tls.Config) func() error {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(secure != nil)
	p.SetUnencryptedHTTP2(secure == nil)
	t.http.Handler, t.http.TLSConfig, t.http.Protocols = patience{h, oversized}, secure, &p
	within := bounded{t.listener, t.connections, secure == nil}
	accept := func() error { return t.http.ServeTLS(within, "", "") }
	if secure == nil {
		t.quick = newQuick(h, oversized, t.logger)
		rest := t.quick.front(within)
		accept = func() error { return t.http.Serve(rest) }
	}
	return func() error {
		if err := accept(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// shutdown stops accepting connections and waits for requests in flight. If the context ends first,
// it cuts off the remaining requests. The quick path, which serves simple requests without
// net/http, stops first: it closes its idle connections at once, even if a request in net/http
// delays http.Server.Shutdown.
func (t *tcp) shutdown(ctx context.Context) error {
	if t.quick != nil {
		t.quick.stop()
	}
	err := t.http.Shutdown(ctx)
	if err != nil {
		t.http.Close()
	}
	if t.quick != nil {
		err = errors.Join(err, t.quick.wait(ctx))
	}
	t.listener.Close() // http.Server has closed the listener only if it was serving
	return err
}
