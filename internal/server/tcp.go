//lint:file-ignore SA1019 net/http has no function that serves a single connection, see speakHTTP2

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/net/http2"

	"weir/internal/server/loop"
	"weir/internal/server/loop/h2"
)

// tcp is a listener for HTTP/1.1 and HTTP/2, in clear text or over TLS.
type tcp struct {
	http        *http.Server
	listener    net.Listener
	front       *front // gives connections to the event loops; nil without loops
	plain       bool   // use net/http alone
	http2       *http2.Server
	limits      h2.Limits // of the HTTP/2 connections of the event loops
	connections *connections
	logger      *slog.Logger
}

func newTCP(l net.Listener, c *connections, o *Options) *tcp {
	return &tcp{listener: l, connections: c, logger: o.Logger, plain: o.NetHTTPOnly, limits: loopBounds(o), http: &http.Server{
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: libraryHeaderBytes, HTTP2: http2Bounds(o),
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
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
// goroutine. When serve returns, all fields are set, so that shutdown can read them in another
// goroutine.
func (t *tcp) serve(h, oversized http.Handler, secure *tls.Config) func() error {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(secure != nil)
	p.SetUnencryptedHTTP2(secure == nil)
	t.http.TLSConfig, t.http.Protocols = secure, &p
	var err error
	if t.http2, err = speakHTTP2(t.http); err != nil {
		return func() error { return err }
	}
	rest := t.open(bounded{t.listener, t.connections, secure == nil}, h, oversized, secure)
	patience := patience{Handler: h, oversized: oversized}
	if t.front != nil && secure == nil {
		patience.loops = t.front.loops
	}
	t.http.Handler = patience
	if t.front != nil {
		t.front.start()
	}
	return func() error {
		if err := t.http.Serve(rest); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// open returns the listener of net/http. With event loops, this listener gets only the connections
// that the loops do not serve.
func (t *tcp) open(within bounded, h, oversized http.Handler, secure *tls.Config) net.Listener {
	if !t.plain {
		front, err := newFront(t, within, h, oversized, secure)
		if err == nil {
			t.front = front
			return front.listener()
		}
		if !errors.Is(err, loop.ErrUnsupported) {
			t.logger.Warn("event loops disabled", "error", err)
		}
	}
	if secure != nil {
		return tls.NewListener(within, secure)
	}
	return replaying{within, oversized}
}

// serveHTTP2 serves an HTTP/2 connection. The parameter hasPreface says that the preface of the client
// has already been read.
func (t *tcp) serveHTTP2(c net.Conn, hasPreface bool) {
	t.http2.ServeConn(c, &http2.ServeConnOpts{
		Context: t.http.ConnContext(context.Background(), c), Handler: t.http.Handler, BaseConfig: t.http, SawClientPreface: hasPreface,
	})
}

// shutdown stops accepting connections and waits for requests in flight. If the context ends first,
// it cuts off the remaining requests. The event loops stop first, so that they close their idle
// connections at once, even if a request in net/http delays http.Server.Shutdown.
func (t *tcp) shutdown(ctx context.Context) error {
	if t.front != nil {
		t.front.loops.Stop()
	}
	err := t.http.Shutdown(ctx)
	if err != nil {
		t.http.Close()
	}
	if t.front != nil {
		err = errors.Join(err, t.front.wait(ctx))
	}
	t.listener.Close() // http.Server has closed the listener only if it was serving
	return err
}
