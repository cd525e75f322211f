package server

import (
	"net/http"
	"time"

	"github.com/quic-go/quic-go"

	"weir/internal/server/loop"
	"weir/internal/server/loop/h2"
)

// The bounds of a connection, for every protocol. A response as a whole has no write timeout,
// because a subscription is one endless response. The handler of a subscription sets a deadline for
// each write instead.
const (
	readHeaderTimeout = 10 * time.Second // for a request head, and for a TLS handshake
	idleTimeout       = 2 * time.Minute  // for a connection without a request
	maxHeaderBytes    = 16 << 10         // maximum size of the request target and header fields together
	maxStreams        = 1000             // maximum number of concurrent requests of one HTTP/2 or HTTP/3 connection

	// libraryHeaderBytes is the size at which net/http and http3 stop reading header fields. They
	// then send a 431 without any explanation. So the server lets them read more than
	// maxHeaderBytes, and refuses a request between the two sizes itself, with a response that says
	// why.
	libraryHeaderBytes = 2 * maxHeaderBytes

	// writeBuffer is the size of the kernel's send buffer of a TCP connection. By default this
	// buffer can grow to megabytes, and a client that reads nothing would keep all of it in use.
	writeBuffer = 64 << 10

	// If a handler refuses a request without reading its body, the server reads and discards up to
	// skipBytes of the body, for at most skipTime. Then the connection can be used for the next
	// request. If the body is longer, the server closes the connection, because a new connection
	// costs less than reading the rest.
	skipBytes = 256 << 10
	skipTime  = 30 * time.Second

	// answerTime is how long the client may take to receive the rest of a response after the
	// handler has returned.
	answerTime = 30 * time.Second

	// A silent QUIC connection gets a ping every quicKeepAlive, so that NAT routers keep their
	// mapping. After quicSilence without a packet from the client the connection is closed. During
	// the handshake, quicHandshake applies instead of quicSilence.
	quicHandshake = 5 * time.Second
	quicKeepAlive = 20 * time.Second
	quicSilence   = 60 * time.Second

	// These sizes limit the bytes that a client has sent and no handler has read yet: of one HTTP/2
	// or HTTP/3 connection, and of one HTTP/3 stream. Options.Window may lower these sizes, but not
	// below LeastWindow.
	http2Window      = 1 << 20
	quicWindow       = 8 << 20
	quicStreamWindow = 2 << 20
	quicUniStreams   = 16 // maximum number of unidirectional streams; HTTP/3 itself needs three

	// These are the initial sizes of the two windows of HTTP/3. The windows grow to the sizes above
	// as handlers read. They begin small, because the server has not authenticated the client yet.
	quicFirstStreamWindow = 128 << 10
	quicFirstWindow       = 256 << 10

	// If more handshakes than this are in progress, a new client must first prove that it receives
	// packets at its address (QUIC Retry). Otherwise an attacker could fill the server with
	// handshakes from forged addresses.
	quicHandshakes = 64

	// lastPackets is how long a server that shuts down waits after the last request, before it
	// closes the QUIC connections that are still open. The last packets of the last responses need
	// this time to arrive.
	lastPackets = time.Second
)

// LeastWindow is the lowest useful value of Options.Window. HTTP/2 allows a client to send this much
// before it has read the settings of the server.
const LeastWindow = 64 << 10

// within returns a window size, or o.Window if that is smaller.
func (o *Options) within(size int) int {
	if o.Window == 0 {
		return size
	}
	return min(size, max(o.Window, LeastWindow))
}

// http2Bounds are the bounds of an HTTP/2 connection. After 20 s without a frame the server sends a
// ping, and closes the connection if there is no reply within 15 s. It also closes a connection
// that accepts no byte for 30 s while there is data to send.
func http2Bounds(o *Options) *http.HTTP2Config {
	window := o.within(http2Window)
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, SendPingTimeout: 20 * time.Second, PingTimeout: 15 * time.Second,
		WriteByteTimeout: 30 * time.Second, MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window,
	}
}

// loopBounds are the bounds of an HTTP/2 connection that an event loop serves. For requests that pass
// through a tunnel, the bounds above apply too.
func loopBounds(o *Options) h2.Limits {
	const perField, fields = 32, 10 // net/http allows this too
	return h2.Limits{
		Window: o.within(http2Window), Streams: maxStreams, HeaderBytes: libraryHeaderBytes + perField*fields, Body: loop.MaxBody,
	}
}

// quicBounds are the bounds of a QUIC connection. Early data (0-RTT) stays off, because an attacker
// can record and replay it, and a publish that is replayed could be stored twice.
func quicBounds(o *Options) *quic.Config {
	window := func(size int) uint64 { return uint64(o.within(size)) }
	return &quic.Config{
		HandshakeIdleTimeout: quicHandshake, MaxIdleTimeout: quicSilence, KeepAlivePeriod: quicKeepAlive,
		MaxIncomingStreams: maxStreams, MaxIncomingUniStreams: quicUniStreams,
		InitialStreamReceiveWindow: window(quicFirstStreamWindow), InitialConnectionReceiveWindow: window(quicFirstWindow),
		MaxStreamReceiveWindow: window(quicStreamWindow), MaxConnectionReceiveWindow: window(quicWindow),
		Allow0RTT: false,
	}
}
