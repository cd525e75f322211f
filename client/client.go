package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Options configure a [Client]. Only URL is required.
type Options struct {
	// URL is the root of the service: http or https, a host and, if a proxy in front of the service
	// expects a path before /v1, that path.
	URL string

	// Key is the API key, sent with every request. Without a key, only health, version and the demo
	// stream are available.
	Key Key

	// KeyFunc, if not nil, returns the key, and Key is ignored. The client calls KeyFunc for the
	// first request, and again when the service refuses the key. If KeyFunc then returns another
	// key, the client sends the request again with that key. Publishers and subscribers continue
	// where they were. KeyFunc may be called from any goroutine, but never concurrently.
	KeyFunc func(context.Context) (Key, error)

	// TLS configures https connections, for example with the certificate authority of the service.
	// Nil means the defaults, which trust the system's CA certificates.
	TLS *tls.Config

	// HTTP1 makes the client use HTTP/1.1 for an http URL. By default the client starts with
	// cleartext HTTP/2, and switches to HTTP/1.1 if a proxy in front of the service does not
	// support cleartext HTTP/2. HTTP1 has no effect on https, where the version is negotiated.
	HTTP1 bool

	// Transport, if not nil, sends the requests instead of the client's own transport. An example
	// is the HTTP/3 transport of package client/http3. Transport must not follow redirects.
	Transport http.RoundTripper

	// Retry is how long a call is retried if the connection fails or the service cannot answer. 0
	// means 20 s, and a negative value disables retries. Publishers and subscribers ignore Retry.
	Retry time.Duration

	// Timeout is how long an attempt may go without progress; 0 means 30 s. An attempt makes
	// progress as long as data moves over its connection, so an attempt that is merely slow is not
	// cancelled. Timeout does not apply to the connection of a subscriber; see
	// [SubscriberOptions.Silence].
	Timeout time.Duration

	// UserAgent is the User-Agent header of all requests; empty means "weir-go".
	UserAgent string
}

// Client calls the API of one service with one key. It is safe for concurrent use.
type Client struct {
	o        Options
	base     string // the URL without a trailing slash
	keys     keys
	versions versions
	own      transports
	reached  atomic.Bool // the service has answered a request
}

// New returns a client. New does not connect; the first call does. New fails only if the options
// are invalid.
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
	if err := o.Key.check(); err != nil {
		return nil, err
	}
	if o.Retry == 0 {
		o.Retry = 20 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.UserAgent == "" {
		o.UserAgent = "weir-go"
	}
	c := &Client{o: o, base: strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/")}
	c.keys = keys{now: o.Key, ask: o.KeyFunc, turn: make(chan struct{}, 1)}
	c.versions.http1.Store(o.HTTP1)
	c.own = transports{c: c, make: func(http1 bool) http.RoundTripper { return c.newTransport(http1) }}
	return c, nil
}

// Close closes idle connections. Close does not affect publishers, which have a Close method of
// their own, or subscribers, which end with their context.
func (c *Client) Close() { c.own.close() }

// clearAddress returns the host and the port of an http URL. It returns false for an https URL, and
// for a host that is not ASCII, which only http.Transport can translate.
func (c *Client) clearAddress() (string, bool) {
	u, err := url.Parse(c.base)
	if err != nil || u.Scheme != "http" || strings.ContainsFunc(u.Host, func(r rune) bool { return r >= 0x80 }) {
		return "", false
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), true
}

func (c *Client) transport() http.RoundTripper { return c.own.get() }

func closeIdle(t http.RoundTripper) {
	if t, ok := t.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// newTransport returns a transport for one HTTP version of an http URL, or for all versions of an
// https URL.
func (c *Client) newTransport(http1 bool) *http.Transport {
	var p http.Protocols
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: limitUnsent}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return newMoving(conn), nil
		},
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     c.o.TLS.Clone(),
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: defaultInFlight, // for HTTP/1.1; HTTP/2 needs one connection only
		DisableCompression:  true,
		Protocols:           &p,
		HTTP2:               &http.HTTP2Config{},
	}
	if strings.HasPrefix(c.base, "https:") {
		t.Proxy = http.ProxyFromEnvironment
		p.SetHTTP1(true)
		p.SetHTTP2(true)
	} else {
		p.SetHTTP1(http1)
		p.SetUnencryptedHTTP2(!http1)
	}
	return t
}
