package client_test

import (
	"testing"

	"weir/internal/faultnet"
)

// proxy is a fault proxy, together with its address as a URL.
type proxy struct {
	*faultnet.Proxy
	url string
}

func startProxy(t testing.TB, o faultnet.Options) proxy {
	t.Helper()
	p, err := faultnet.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	scheme := "http://"
	if o.TLS != nil || o.UDP {
		scheme = "https://"
	}
	return proxy{p, scheme + p.Address()}
}
