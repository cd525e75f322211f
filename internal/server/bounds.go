package server

import (
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
)

// The bounds of a connection, for every protocol. There is no overall write timeout, because a
// subscription is one endless response; its handler sets a deadline for each write instead.
const (
	readHeaderTimeout = 10 * time.Second // also for the TLS handshake
	idleTimeout       = 2 * time.Minute  // without a request
	maxHeaderBytes    = 16 << 10         // request target and header fields
	maxStreams        = 1000             // concurrent requests of one HTTP/2 or HTTP/3 connection

	// libraryHeaderBytes is where the libraries stop reading header fields. They answer with a bare
	// 431 then, so the server gives them room above maxHeaderBytes and refuses in its own words what
	// lies between.
	libraryHeaderBytes = 2 * maxHeaderBytes

	// writeBuffer is the kernel's send buffer of a TCP connection. By default the kernel lets it
	// grow to megabytes, all of which a client that reads nothing would hold.
	writeBuffer = 64 << 10

	// If a handler refuses a request without reading its body, the server reads up to skipBytes of
	// the body, for at most skipTime, so that the connection can be used for the next request. A
	// longer body would cost more than a new connection, and the connection is closed.
	skipBytes = 256 << 10
	skipTime  = 30 * time.Second

	// answerTime is how long the client may take to accept the rest of a response whose handler has
	// returned.
	answerTime = 30 * time.Second

	// A silent QUIC connection gets a ping every quicKeepAlive, so that NAT routers keep their
	// mapping. After quicSilence without a packet from the client the connection is closed.
	quicHandshake = 5 * time.Second
	quicKeepAlive = 20 * time.Second
	quicSilence   = 60 * time.Second

	// The maximum amount of data that an HTTP/3 client may send beyond what the handlers have read.
	// It bounds the memory for one stream and for one connection.
	quicStreamWindow     = 2 << 20
	quicConnectionWindow = 8 << 20
	quicUniStreams       = 16 // HTTP/3 itself needs three

	// The initial size of these windows, which grow up to the maximum as handlers read. It is small
	// because the server has not authenticated the client at this point.
	quicFirstStreamWindow     = 128 << 10
	quicFirstConnectionWindow = 256 << 10

	// If more handshakes than this are in progress, clients must prove that they own their address
	// (QUIC Retry). Otherwise an attacker could fill the server with handshakes from forged
	// addresses.
	quicHandshakes = 64

	// lastPackets is how long a draining server waits after the last request before it closes QUIC
	// connections that clients leave open. The last packets of the last responses need this time to
	// arrive.
	lastPackets = time.Second
)

// http2Bounds are the bounds of an HTTP/2 connection. After 20 s without a frame the server sends a
// ping, and closes the connection if there is no reply within 15 s. It also closes a connection
// that accepts no byte for 30 s while there is data to send.
func http2Bounds() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, SendPingTimeout: 20 * time.Second, PingTimeout: 15 * time.Second,
		WriteByteTimeout: 30 * time.Second,
	}
}

// quicBounds are the bounds of a QUIC connection. Early data (0-RTT) stays off, because an attacker
// can record and replay it, and a replayed publish would be stored twice.
func quicBounds() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: quicHandshake, MaxIdleTimeout: quicSilence, KeepAlivePeriod: quicKeepAlive,
		MaxIncomingStreams: maxStreams, MaxIncomingUniStreams: quicUniStreams,
		InitialStreamReceiveWindow: quicFirstStreamWindow, InitialConnectionReceiveWindow: quicFirstConnectionWindow,
		MaxStreamReceiveWindow: quicStreamWindow, MaxConnectionReceiveWindow: quicConnectionWindow,
		Allow0RTT: false,
	}
}
