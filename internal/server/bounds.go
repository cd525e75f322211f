package server

import (
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
)

// The bounds of a connection, whatever it speaks. There is no overall write timeout: a subscription is one endless answer,
// and bounds each write by itself.
const (
	readHeaderTimeout = 10 * time.Second // also of a TLS handshake
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxStreams        = 1000 // of one HTTP/2 or HTTP/3 connection
	writeBuffer       = 64 << 10
	skipBytes         = 256 << 10 // so much of a body that nobody wanted is read, in skipTime, to keep the connection
	skipTime          = 30 * time.Second
	answerTime        = 30 * time.Second // for the end of an answer, when its handler has returned

	// A QUIC connection is pinged while it is silent, so that routers keep its way open, and given up when nothing at
	// all comes back.
	quicHandshake = 5 * time.Second
	quicKeepAlive = 20 * time.Second
	quicSilence   = 60 * time.Second

	// What a client may have under way over HTTP/3 beyond what has been read.
	quicStreamWindow     = 2 << 20
	quicConnectionWindow = 8 << 20
	quicUniStreams       = 16 // HTTP/3 itself takes three

	// What it may have under way before anything has been read: the windows grow with what is. Small, since nobody has said
	// yet who they are.
	quicFirstStreamWindow     = 128 << 10
	quicFirstConnectionWindow = 256 << 10

	// With more handshakes than this under way, clients must show that their address is their own (QUIC's Retry).
	quicHandshakes = 64

	// lastPackets is how long the end of the last answers may be on its way before a draining server closes QUIC
	// connections that their clients leave open.
	lastPackets = time.Second
)

// http2Bounds are those of an HTTP/2 connection.
func http2Bounds() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, SendPingTimeout: 20 * time.Second, PingTimeout: 15 * time.Second,
		WriteByteTimeout: 30 * time.Second,
	}
}

// quicBounds are those of a QUIC connection. Early data (0-RTT) stays off: whoever records it can send it again, and a
// publish would be stored twice.
func quicBounds() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: quicHandshake, MaxIdleTimeout: quicSilence, KeepAlivePeriod: quicKeepAlive,
		MaxIncomingStreams: maxStreams, MaxIncomingUniStreams: quicUniStreams,
		InitialStreamReceiveWindow: quicFirstStreamWindow, InitialConnectionReceiveWindow: quicFirstConnectionWindow,
		MaxStreamReceiveWindow: quicStreamWindow, MaxConnectionReceiveWindow: quicConnectionWindow,
		Allow0RTT: false,
	}
}
