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

// Options say where the service is, who asks, and how.
type Options struct {
	// URL is the root address of the service: http or https, a host, and a path where a proxy puts one before /v1.
	URL string

	// Key is sent with every request. Without one, only health, version and the demo stream can be read.
	Key string

	// TLS is for https: the authority of the service's certificate, for example. Nil trusts what the system trusts.
	TLS *tls.Config

	// HTTP1 speaks HTTP/1.1 to a http address, for the sake of proxies that know no cleartext HTTP/2. With https it is
	// negotiated.
	HTTP1 bool

	// Transport carries the requests, instead of one that the client makes: one of package client/http3, for example.
	// It must not follow redirects.
	Transport http.RoundTripper

	// Attempts is how often a call is made until it succeeds, the first time included: 0 means 4, and 1 means once.
	// Publishers and subscribers are not bound by it.
	Attempts int

	// Timeout bounds each attempt; 0 means a minute. A subscription is not bound by it.
	Timeout time.Duration

	// UserAgent is sent with every request; empty means weir-go.
	UserAgent string
}

// Client is a service as one key sees it. It may be used by many goroutines at once.
type Client struct {
	o         Options
	base      string // without a slash at the end
	transport http.RoundTripper
}

// New makes a client. It connects when it is first used.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("the URL of the service cannot be read") // the parser would repeat what may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("the URL of the service is %q, not a http or https address", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the URL of the service holds a user name: the key is an option of its own")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL of the service is %q: it may not have a query or a fragment", u.Redacted())
	}
	for _, r := range o.Key {
		if r <= ' ' || r >= 0x7f {
			return nil, errors.New("the key holds a character that no key has")
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

// Close closes the connections that are not in use. Publishers are closed by themselves, subscribers end with their context.
func (c *Client) Close() { closeIdle(c.transport) }

func closeIdle(t http.RoundTripper) {
	if t, ok := t.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// newTransport makes a transport that asks a connection whether it is alive after so much silence, and gives it up when
// there is no answer.
func (c *Client) newTransport(silence, answer time.Duration) *http.Transport {
	var p http.Protocols
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		TLSClientConfig:     c.o.TLS.Clone(),
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 64, // of HTTP/1.1
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
