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

// visit tracks one QUIC connection, from its first packet to its end, for the connection limits and
// the idle timeout. Handlers find the visit in the context of the connection.
type visit struct {
	udp   *udp
	place *place

	mu     sync.Mutex
	shaken bool        // the handshake has succeeded or failed
	over   bool        // the connection has ended
	busy   int         // number of running handlers
	idle   *time.Timer // closes the connection after the idle timeout; nil during the handshake
}

type visitKey struct{}

var errFull = errors.New("connection limit reached")

// admit is called when the first packet of a connection arrives. It counts the connection, or
// refuses it if the limits are reached. When the connection ends, its context ends too, and the
// connection is removed from the count.
func (u *udp) admit(ctx context.Context, from *quic.ClientInfo) (context.Context, error) {
	place, ok := u.connections.take(from.RemoteAddr)
	if !ok {
		return nil, errFull
	}
	u.handshakes.Add(1)
	v := &visit{udp: u, place: place}
	context.AfterFunc(ctx, func() {
		v.shake(nil)
		place.leave()
	})
	return context.WithValue(ctx, visitKey{}, v), nil
}

// evicted closes a connection to make room for another. It implements loop.Holder.
type evicted struct{ *quic.Conn }

func (c evicted) Evict() {
	c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "idle, and its place is needed")
}

// requireRetry reports whether a new client must first prove that it receives packets at its
// address (QUIC Retry). Until the proof, the server keeps no state for the client.
func (u *udp) requireRetry(net.Addr) bool { return u.handshakes.Load() > quicHandshakes }

// shake is called with the connection when its handshake has succeeded, and with nil when the
// connection has ended. The two calls may come in either order. If the handshake fails, there is
// only the call with nil.
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
		v.place.hold(evicted{c})
		v.place.rest(time.Now())
		if v.over {
			v.idle.Stop()
		}
	}
}

// track counts the requests in flight: all of them for drain, and those of each connection for the
// idle timeout. http3 has an idle timeout of its own, but that timeout does not end a connection
// whose client opens streams and never sends a complete request on them.
func (u *udp) track(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
			if !v.begin() {
				panic(http.ErrAbortHandler)
			}
			defer v.end()
		}
		u.busy.Add(1)
		defer u.busy.Add(-1)
		h.ServeHTTP(w, r)
	})
}

// begin stops the idle timeout for the duration of a request. It returns false if the request must
// not be handled, see place.begin.
func (v *visit) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.place.begin() {
		return false
	}
	v.busy++
	v.idle.Stop()
	return true
}

// end starts the idle timeout again when the last of the concurrent requests has ended.
func (v *visit) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy--; v.busy == 0 && !v.over {
		v.place.rest(time.Now())
		v.idle.Reset(v.udp.idle)
	}
}
