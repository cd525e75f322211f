package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// udp is a listener for HTTP/3.
type udp struct {
	http      *http3.Server
	socket    *net.UDPConn
	transport *quic.Transport
	listener  *quic.Listener
	logger    *slog.Logger

	connections *connections
	bounds      *quic.Config
	handshakes  atomic.Int64  // handshakes in progress
	idle        time.Duration // idle timeout of a connection

	altSvc atomic.Pointer[[]string] // values of the alt-svc field; nil while HTTP/3 is not served
	busy   atomic.Int64             // requests in flight
	over   chan struct{}            // closed when the method serve has returned
}

func newUDP(socket *net.UDPConn, c *connections, o *Options) *udp {
	return &udp{socket: socket, connections: c, bounds: quicBounds(o), idle: idleTimeout, logger: o.Logger, over: make(chan struct{})}
}

// listen starts QUIC on the socket. Clients can connect, but their requests are not handled until
// the method serve is called.
func (u *udp) listen(h, oversized http.Handler, secure *tls.Config, resetKey *[32]byte) error {
	transport := &quic.Transport{
		Conn: u.socket, StatelessResetKey: (*quic.StatelessResetKey)(resetKey), VerifySourceAddress: u.requireRetry, ConnContext: u.admit,
	}
	// Listen returns a connection only after its handshake is complete, so no request is handled
	// before that. ListenEarly would return it earlier.
	l, err := transport.Listen(http3.ConfigureTLSConfig(secure), u.bounds)
	if err != nil {
		return err
	}
	u.transport, u.listener = transport, l
	u.http = &http3.Server{
		MaxHeaderBytes: libraryHeaderBytes, Logger: slog.New(warningsOnly{u.logger.Handler()}), Handler: u.track(patience{Handler: h, oversized: oversized}),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			ctx.Value(visitKey{}).(*visit).shake(c)
			return ctx
		},
	}
	return nil
}

// warningsOnly passes on only warnings and errors. At lower levels, http3 logs URLs with all their
// parameters, which may contain API keys.
type warningsOnly struct{ slog.Handler }

func (l warningsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}

func (l warningsOnly) WithAttrs(a []slog.Attr) slog.Handler {
	return warningsOnly{l.Handler.WithAttrs(a)}
}
func (l warningsOnly) WithGroup(name string) slog.Handler {
	return warningsOnly{l.Handler.WithGroup(name)}
}

// serve serves HTTP/3 until shutdown. If the socket fails, HTTP/1.1 and HTTP/2 over TLS continue
// and stop advertising HTTP/3.
func (u *udp) serve() {
	defer close(u.over)
	port := strconv.Itoa(u.socket.LocalAddr().(*net.UDPAddr).Port)
	u.altSvc.Store(&[]string{`h3=":` + port + `"; ma=86400`})
	defer u.altSvc.Store(nil)
	if err := u.http.ServeListener(u.listener); !errors.Is(err, http.ErrServerClosed) {
		u.logger.Warn("HTTP/3 failed; HTTPS continues without it", "error", err)
	}
}

// announce adds the alt-svc field, which advertises HTTP/3, to the responses of h while HTTP/3 is
// served.
func (u *udp) announce(h http.Handler) http.Handler {
	return adding(h, func(f http.Header) {
		if v := u.altSvc.Load(); v != nil {
			f["Alt-Svc"] = *v
		}
	})
}

// shutdown stops accepting connections, sends GOAWAY to clients, and waits for requests in flight.
// When the context ends, it cuts off the remaining requests. It closes connections without requests
// after lastPackets. It does not wait for their clients to close them, because a QUIC client can
// disappear without sending a packet.
//
// The Close methods of the listener and of the transport wait for handshakes in progress, which a
// client can delay. So both run in the background, and shutdown waits for each only briefly.
func (u *udp) shutdown(ctx context.Context) error {
	defer u.socket.Close()
	if u.listener == nil {
		return nil
	}
	go u.listener.Close()
	wait(u.over) // drain must not call http3.Server.Shutdown while serve still accepts connections
	err := u.drain(ctx)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		u.transport.Close()
	}()
	wait(closed)
	return err
}

// drain waits until no request is in flight. If the context ends first, drain cuts the requests off
// and returns the error of the context. http3.Server.Shutdown also waits for idle connections,
// which clients may keep open. So drain polls the number of requests, and cancels Shutdown once no
// request was in flight for lastPackets.
func (u *udp) drain(ctx context.Context) error {
	patience, cut := context.WithCancel(context.Background())
	defer cut()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		u.http.Shutdown(patience)
	}()
	tick := time.NewTicker(lastPackets / 20)
	defer tick.Stop()
	for used := time.Now(); ; {
		select {
		case <-drained:
			return nil
		case now := <-tick.C:
			if u.busy.Load() > 0 {
				used = now
			} else if now.Sub(used) >= lastPackets {
				cut()
			}
		case <-ctx.Done():
			busy := u.busy.Load() > 0
			cut()
			<-drained
			if busy {
				return ctx.Err()
			}
			return nil
		}
	}
}

// wait waits until c is closed, but not longer than half of lastPackets. Usually c is closed at
// once.
func wait(c <-chan struct{}) {
	late := time.NewTimer(lastPackets / 2)
	defer late.Stop()
	select {
	case <-c:
	case <-late.C:
	}
}
