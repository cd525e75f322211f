package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options configure a [Client]. Only URL is required.
type Options struct {
	// URL is the root of the service: http or https, a host, and the path that a proxy in front of
	// the service adds before /v1, if any.
	URL string

	// Key is the API key, sent with every request. Without a key, only health, version and the demo
	// stream are available.
	Key string

	// TLS configures https connections, for example with the certificate authority of the service.
	// Nil means the defaults, which trust the system's CA certificates.
	TLS *tls.Config

	// HTTP1 makes the client use HTTP/1.1 for an http URL, instead of cleartext HTTP/2, which some
	// proxies do not support. It has no effect on https, where the version is negotiated.
	HTTP1 bool

	// Transport, if not nil, sends the requests instead of the client's own transport. An example
	// is the HTTP/3 transport of package client/http3. It must not follow redirects.
	Transport http.RoundTripper

	// Attempts is the maximum number of attempts per call, including the first: 0 means 4, and 1
	// disables retries. Publishers and subscribers ignore it.
	Attempts int

	// Timeout is the time limit of one attempt; 0 means one minute. Subscribers ignore it.
	Timeout time.Duration

	// UserAgent is the User-Agent header of all requests; empty means "weir-go".
	UserAgent string
}

// Client calls the API of one service with one key. It is safe for concurrent use.
type Client struct {
	o         Options
	base      string // the URL without a trailing slash
	transport http.RoundTripper
}

// New returns a client. It does not connect: the first call does. New fails only if the options are
// invalid.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("the service URL is malformed") // err would repeat the URL, which may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("the service URL is %q; it must start with http:// or https:// and a host", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the service URL contains a user name; pass the key separately")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the service URL is %q; it must not have a query or a fragment", u.Redacted())
	}
	for _, r := range o.Key {
		if r <= ' ' || r >= 0x7f {
			return nil, errors.New("the key contains a space, a control character or a non-ASCII character")
		}
	}
	if o.Attempts <= 0 {
		o.Attempts = 4
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if o.UserAgent == "" {
		o.UserAgent = "weir-go"
	}
	c := &Client{o: o, base: strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), transport: o.Transport}
	if c.transport == nil {
		c.transport = c.newTransport(15*time.Second, 15*time.Second)
	}
	return c, nil
}

// Close closes idle connections. It does not close publishers, which have a Close method of their
// own, or subscribers, which end with their context.
func (c *Client) Close() { closeIdle(c.transport) }

func closeIdle(t http.RoundTripper) {
	if t, ok := t.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// newTransport returns a transport that pings an HTTP/2 connection after this much silence, and
// closes it if there is no answer in time.
func (c *Client) newTransport(silence, answer time.Duration) *http.Transport {
	var p http.Protocols
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     c.o.TLS.Clone(),
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 64, // for HTTP/1.1; HTTP/2 needs one
		DisableCompression:  true,
		Protocols:           &p,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: answer},
	}
	if strings.HasPrefix(c.base, "https:") {
		t.Proxy = http.ProxyFromEnvironment
		p.SetHTTP1(true)
		p.SetHTTP2(true)
	} else {
		p.SetHTTP1(c.o.HTTP1)
		p.SetUnencryptedHTTP2(!c.o.HTTP1)
	}
	return t
}
