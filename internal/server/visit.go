package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// visit is one QUIC connection, as far as we count it.
type visit struct {
	udp *udp

	mu     sync.Mutex
	shaken bool        // the handshake is over, one way or the other
	over   bool        // and so is the connection
	busy   int         // requests whose handlers run
	idle   *time.Timer // closes the connection; nil during the handshake
}

type visitKey struct{}

var errFull = errors.New("there are as many connections as there may be")

// welcome takes a connection in whose first packet has come.
func (u *udp) welcome(ctx context.Context, from *quic.ClientInfo) (context.Context, error) {
	if !u.connections.take(from.RemoteAddr) {
		return nil, errFull
	}
	u.handshakes.Add(1)
	v := &visit{udp: u}
	context.AfterFunc(ctx, func() {
		v.shake(nil)
		u.connections.give(from.RemoteAddr)
	})
	return context.WithValue(ctx, visitKey{}, v), nil
}

// doubt tells whether a client must show that packets reach it under its address before anything is kept for it.
func (u *udp) doubt(net.Addr) bool { return u.handshakes.Load() > quicHandshakes }

// shake ends the handshake, and with nil the connection.
func (v *visit) shake(c *quic.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.shaken {
		v.shaken = true
		v.udp.handshakes.Add(-1)
	}
	switch {
	case c == nil:
		if v.over = true; v.idle != nil {
			v.idle.Stop()
		}
	default:
		v.idle = time.AfterFunc(v.udp.idle, func() {
			c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "idle timeout")
		})
		if v.over {
			v.idle.Stop()
		}
	}
}

// attend counts the requests of each connection. One without any is closed after a while: http3 would not do that to who opens
// streams and sends no whole request on them.
func (u *udp) attend(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
			v.begin()
			defer v.end()
		}
		u.busy.Add(1)
		defer u.busy.Add(-1)
		h.ServeHTTP(w, r)
	})
}

func (v *visit) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy++
	v.idle.Stop()
}

func (v *visit) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy--; v.busy == 0 && !v.over {
		v.idle.Reset(v.udp.idle)
	}
}
