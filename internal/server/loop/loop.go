// Package loop serves plain HTTP requests of many connections in few goroutines. Each
// loop waits for its connections with epoll, reads whatever has arrived, and parses it. A handler
// that implements Later begins a request without waiting for its outcome. So a request that waits
// for the disk occupies no goroutine, and the responses of all requests that one sync of the disk
// has completed are sent in one pass.
//
// A request is plain if it is a POST or PUT with a body of known length, or a GET of a subscriber
// without a body, and nothing about its head is unusual (see plainHead). A client must not be able to
// tell a loop from net/http, so the loop does little by itself: http.ReadRequest parses requests, and
// the same handler answers them. A request that is not plain, is large or does not arrive at once
// goes to net/http with the data read so far (Options.HandOver), and so does everything that follows
// on the connection. When in doubt, a request goes to net/http: that is slower, but never wrong.
//
// Over HTTP/2, package h2 says which requests are plain. Other requests go to net/http one by one
// (Options.Tunnel). If the first request of a connection is not plain, net/http gets the connection.
//
// A connection over TLS is served in the same way, once its handshake is complete (see Session).
//
// A response that waits most of the time, such as that of a subscriber, can be parked (Loops.Park).
// A loop then owns the connection of the response, and the handler returns. While it waits, such a
// response takes no goroutine and no buffer.
//
// A handler can notice two differences from net/http. The response is sent when the handler has
// finished, so a handler cannot stream. And the context of the request never ends: the server
// notices that a client has disconnected only when it sends the response.
//
// Loops exist on Linux only. DESIGN.md says why the loop is built the way it is.
package loop

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"weir/internal/server/loop/h2"
)

// Later is a handler that can begin a request without waiting for its outcome.
type Later interface {
	http.Handler

	// ServeLater begins to answer a request. It must not block. If it does not take the request, it
	// does nothing, and the result taken is false. The loop then calls ServeHTTP in another
	// goroutine.
	//
	// If ServeLater takes the request, the result done says whether the response is complete. If it
	// is not, the handler must later call the method Ready of w, from any goroutine:
	//
	//	Ready(f interface{ Finish() })
	//
	// The loop then calls f.Finish, which completes the response and must not block. The handler
	// must not use w and r afterwards. The body of r has a method Take, which returns the whole
	// body. The caller of Take owns the result.
	ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool)
}

// Flusher is a Later that collects requests, so that one sync of the disk can complete all of them.
type Flusher interface {
	Later

	// Flush begins to store what ServeLater has taken since the last call of Flush. The loop calls it
	// when it has passed on all requests that have arrived. Flush may wait for a disk that takes a
	// fraction of a millisecond, but for nothing else.
	Flush()
}

// Parked is a response that continues after its handler has returned, without a goroutine. A loop
// owns its connection; see Loops.Park. The loop calls all methods but Resume in its own goroutine,
// so they must not block.
type Parked = interface {
	// Enter is called first. From then on, other goroutines may call the methods of the parameter
	// by: Wake makes the loop call Continue soon, and Cut makes it close the connection.
	Enter(by interface {
		Wake()
		Cut()
	})

	// Times returns the time after which an idle client gets a sign of life, and the time that a
	// client has to accept what Continue has returned. They are the same for all parked responses of
	// a set of loops.
	Times() (idle, accept time.Duration)

	// Continue appends to b the data that the client gets now. The loop calls it after Enter, after
	// Wake, and when the client has accepted the result of the previous call. It also calls
	// Continue, with idle set to true, when the client has got nothing for the idle time. If the
	// result leaves is true, the response needs a goroutine: the loop gives up the connection and
	// calls Resume. If the result ends is true, the response is complete. Continue must then have
	// appended at least one byte.
	Continue(b []byte, idle bool) (_ []byte, leaves, ends bool)

	// Resume continues the response in a goroutine of its own. The response writer has deadlines,
	// and a method Park. When Resume has returned without parking the response again, the response is
	// complete.
	Resume(w http.ResponseWriter)

	// Left is called when the loop has given up the response for good: with nil after Continue has
	// ended the response, with os.ErrDeadlineExceeded if the client did not accept data in time, and
	// with another error if the connection was closed. It is not called for a response that Resume
	// has completed.
	Left(err error)
}

// Place is the record of a connection that counts towards a limit.
type Place interface {
	Enter(by Holder)    // a loop serves the connection from now on
	Begin() bool        // a request has begun; false if the connection must be closed instead
	Rest(now time.Time) // the connection has no request
	Leave()             // the connection was closed
}

// Holder is what serves a connection.
type Holder interface {
	Evict() // closes the connection if it has no request; may be called from any goroutine
}

// Options are what a set of loops needs. All fields are required.
type Options struct {
	Handler http.Handler // if it implements Later or Flusher, the loop uses ServeLater and Flush
	Logger  *slog.Logger

	// HandOver takes a connection that the loop does not serve any more. raw is the data that was
	// read from the connection and belongs to no request that the loop has answered. If the
	// connection is encrypted, s is its session, which has to Use a connection again, and raw was
	// read from the session. HandOver must not block.
	HandOver func(c net.Conn, place Place, s *Session, raw []byte)

	// Tunnel takes a connection through which net/http gets those requests of an HTTP/2 connection
	// that the loop does not serve. The client's preface is not part of it. Over TLS, the connection
	// has the method ConnectionState. Tunnel must not block. If Tunnel is nil, the loop passes HTTP/2
	// connections to HandOver.
	Tunnel func(c net.Conn)
	HTTP2  h2.Limits

	Head   time.Duration // how long a new connection may take to send its first request
	Answer time.Duration // how long a client may let a response over HTTP/2 wait for a window
	Idle   time.Duration // how long a connection may have no request; also how long a client may take to receive a response
}

// ErrUnsupported is the error of New on systems without epoll.
var ErrUnsupported = errors.New("event loops need Linux")

const (
	// maxHead is the length in bytes of the longest head of a request that a loop serves.
	maxHead = 4 << 10

	// MaxBody is the length in bytes of the longest body of a request that a loop serves.
	MaxBody = 64 << 10

	// restTime is how long the rest of a request may take to arrive after its first bytes. A slower
	// request goes to net/http, which calls the handler before the whole body has arrived.
	restTime = 20 * time.Millisecond

	// endTime is how long the loop waits for the client to close an HTTP/2 connection that is over.
	// If the server closed it at once, the client might not get the last frames.
	endTime = time.Second
)
