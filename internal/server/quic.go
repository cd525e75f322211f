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
	handshakes  atomic.Int64 // under way
	idle        time.Duration

	altSvc atomic.Pointer[[]string] // what answers over TLS say; nil while nothing is served
	busy   atomic.Int64             // requests in flight
	over   chan struct{}            // closed when nothing is accepted any more
}

func newUDP(socket *net.UDPConn, c *connections, logger *slog.Logger) *udp {
	return &udp{socket: socket, connections: c, idle: idleTimeout, logger: logger, over: make(chan struct{})}
}

// listen begins to answer on the socket.
func (u *udp) listen(h http.Handler, secure *tls.Config, resetKey *[32]byte) error {
	transport := &quic.Transport{
		Conn: u.socket, StatelessResetKey: (*quic.StatelessResetKey)(resetKey), VerifySourceAddress: u.doubt, ConnContext: u.welcome,
	}
	// A plain listener, not an early one: connections come out of it when their handshake is complete.
	l, err := transport.Listen(http3.ConfigureTLSConfig(secure), quicBounds())
	if err != nil {
		return err
	}
	u.transport, u.listener = transport, l
	u.http = &http3.Server{
		MaxHeaderBytes: maxHeaderBytes, Logger: slog.New(loud{u.logger.Handler()}), Handler: u.attend(patience{h}),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			ctx.Value(visitKey{}).(*visit).shake(c)
			return ctx
		},
	}
	return nil
}

// loud passes on warnings and errors. What http3 says below that includes addresses with all their parameters, and
// people put keys there.
type loud struct{ slog.Handler }

func (l loud) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}

func (l loud) WithAttrs(a []slog.Attr) slog.Handler { return loud{l.Handler.WithAttrs(a)} }
func (l loud) WithGroup(name string) slog.Handler   { return loud{l.Handler.WithGroup(name)} }

// serve serves until shutdown. When the socket fails HTTPS goes on without HTTP/3, and no longer says that there is one.
func (u *udp) serve() {
	defer close(u.over)
	port := strconv.Itoa(u.socket.LocalAddr().(*net.UDPAddr).Port)
	u.altSvc.Store(&[]string{`h3=":` + port + `"; ma=86400`})
	defer u.altSvc.Store(nil)
	if err := u.http.ServeListener(u.listener); !errors.Is(err, http.ErrServerClosed) {
		u.logger.Warn("HTTP/3 has failed, HTTPS goes on without it", "error", err)
	}
}

// announce lets answers over TLS say where HTTP/3 is.
func (u *udp) announce(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v := u.altSvc.Load(); v != nil {
			w.Header()["Alt-Svc"] = *v
		}
		h.ServeHTTP(w, r)
	})
}

// shutdown stops accepting, tells clients to go (GOAWAY), and waits for requests in flight until the context ends; then it
// cuts them. Connections without requests are closed after a moment: their clients may be gone without a word.
func (u *udp) shutdown(ctx context.Context) error {
	defer u.socket.Close()
	if u.listener == nil {
		return nil
	}
	go u.listener.Close() // waits for handshakes under way, of whoever
	wait(u.over)          // nothing must come in any more while http3 counts what there is
	err := u.drain(ctx)
	// Closing waits for handshakes too, and the process does not wait with it.
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		u.transport.Close()
	}()
	wait(closed)
	return err
}

// drain returns when no request is in flight any more, or when they were cut because the context ended: that is an error.
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

// wait waits for something that usually comes at once.
func wait(c <-chan struct{}) {
	late := time.NewTimer(lastPackets / 2)
	defer late.Stop()
	select {
	case <-c:
	case <-late.C:
	}
}
