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
	handshakes  atomic.Int64 // in progress
	idle        time.Duration

	altSvc atomic.Pointer[[]string] // alt-svc field; nil while HTTP/3 is not served
	busy   atomic.Int64             // requests in flight
	over   chan struct{}            // closed when serve has returned
}

func newUDP(socket *net.UDPConn, c *connections, logger *slog.Logger) *udp {
	return &udp{socket: socket, connections: c, idle: idleTimeout, logger: logger, over: make(chan struct{})}
}

// listen starts QUIC on the socket. Connections wait until serve is called.
func (u *udp) listen(h, oversized http.Handler, secure *tls.Config, resetKey *[32]byte) error {
	transport := &quic.Transport{
		Conn: u.socket, StatelessResetKey: (*quic.StatelessResetKey)(resetKey), VerifySourceAddress: u.requireRetry, ConnContext: u.admit,
	}
	// Listen, not ListenEarly: it returns connections only after their handshake is complete, so
	// that no request is handled before.
	l, err := transport.Listen(http3.ConfigureTLSConfig(secure), quicBounds())
	if err != nil {
		return err
	}
	u.transport, u.listener = transport, l
	u.http = &http3.Server{
		MaxHeaderBytes: libraryHeaderBytes, Logger: slog.New(warningsOnly{u.logger.Handler()}), Handler: u.track(patience{h, oversized}),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			ctx.Value(visitKey{}).(*visit).shake(c)
			return ctx
		},
	}
	return nil
}

// warningsOnly passes on warnings and errors only. The lower levels of http3 log URLs with all
// their parameters, which may contain keys.
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

// serve serves HTTP/3 until shutdown. If the socket fails, HTTPS continues without HTTP/3 and stops
// advertising it.
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v := u.altSvc.Load(); v != nil {
			w.Header()["Alt-Svc"] = *v
		}
		h.ServeHTTP(w, r)
	})
}

// shutdown stops accepting, sends GOAWAY to clients, and waits for requests in flight until the
// context ends; then it cuts them off. It closes connections without requests after lastPackets,
// because it cannot know whether their clients still exist: a QUIC client can vanish without a
// packet.
//
// Closing the listener and the transport waits for handshakes in progress, which a client can
// delay. So both run in the background, and shutdown waits for them only briefly.
func (u *udp) shutdown(ctx context.Context) error {
	defer u.socket.Close()
	if u.listener == nil {
		return nil
	}
	go u.listener.Close()
	wait(u.over) // http3.Server.Shutdown must not run while connections are still being accepted
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
// and returns the error of the context. http3.Server.Shutdown alone would also wait for idle
// connections, which clients may keep open. So drain polls the number of requests, and ends the
// shutdown once there was none for lastPackets.
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

// wait waits for an event that usually happens immediately, but not longer than half of
// lastPackets.
func wait(c <-chan struct{}) {
	late := time.NewTimer(lastPackets / 2)
	defer late.Stop()
	select {
	case <-c:
	case <-late.C:
	}
}
