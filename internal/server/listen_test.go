package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Listen returns an error that names the flag if an address is in use.
func TestAddressInUse(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	for flag, o := range map[string]Options{
		"(--http)":  {HTTP: s.HTTP(), HTTPS: "127.0.0.1:0", Logger: quiet},
		"(--https)": {HTTP: "127.0.0.1:0", HTTPS: s.HTTPS(), Logger: quiet},
	} {
		other, err := Listen(o)
		if err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("got %v, %v, want an error with %s", other, err, flag)
		}
	}
}

// If the HTTPS address is in use and HTTPSMayFail is set, Listen only logs a warning that names the
// flag. If HTTP is disabled too, Listen returns an error.
func TestHTTPSMayFail(t *testing.T) {
	taken := serve(t, func(http.ResponseWriter, *http.Request) {}).HTTPS()
	var log bytes.Buffer
	o := Options{HTTP: "127.0.0.1:0", HTTPS: taken, HTTPSMayFail: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(http.NotFoundHandler(), TLS{})
	defer s.Shutdown(context.Background())
	if s.HTTPS() != "" || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "--https") || !strings.Contains(log.String(), taken) {
		t.Errorf("HTTPS is at %q, want it disabled with a warning; the log is %s", s.HTTPS(), &log)
	}
	if resp, _ := get(t, wires["HTTP1"].client(t), "http://"+s.HTTP()); resp.StatusCode != 404 {
		t.Errorf("a request over HTTP got status %d, want 404", resp.StatusCode)
	}
	o.HTTP = "off"
	if s, err := Listen(o); err == nil || !strings.Contains(err.Error(), "--https") {
		t.Errorf("with HTTP disabled: got %v, %v; want an error", s, err)
	}
}

// If the UDP port is in use, HTTPS works and does not advertise HTTP/3.
func TestUDPInUse(t *testing.T) {
	s := listen(t)
	_, port, _ := net.SplitHostPort(s.HTTPS())
	s.https.listener.Close() // frees the TCP port; the UDP socket keeps its port in use
	defer s.Shutdown(context.Background())
	var log bytes.Buffer
	other, err := Listen(Options{HTTP: "off", HTTPS: "127.0.0.1:" + port, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	other.Serve(http.NotFoundHandler(), secured())
	defer other.Shutdown(context.Background())
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "--https") {
		t.Errorf("the log has no warning that names --https: %s", &log)
	}
	resp, _ := get(t, wires["HTTP2"].client(t), "https://"+other.HTTPS())
	if resp.StatusCode != 404 || resp.Header["Alt-Svc"] != nil {
		t.Errorf("a request over HTTPS got status %d and alt-svc %q, want 404 and no alt-svc", resp.StatusCode, resp.Header["Alt-Svc"])
	}
}

// If the UDP socket fails while the server runs, HTTPS continues and stops advertising HTTP/3.
func TestUDPFails(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	s.http3.socket.Close()
	<-s.http3.over
	if resp, _ := get(t, wires["HTTP2"].client(t), "https://"+s.HTTPS()); resp.Header["Alt-Svc"] != nil {
		t.Errorf("alt-svc is %q, want none", resp.Header["Alt-Svc"])
	}
	select {
	case err := <-s.Failed():
		t.Errorf("the server reported a failure: %v", err)
	default:
	}
}

// Shutdown frees the addresses, even if Serve was never called.
func TestShutdownFreesTheAddresses(t *testing.T) {
	for name, served := range map[string]bool{"served": true, "never served": false} {
		t.Run(name, func(t *testing.T) {
			s := listen(t)
			if served {
				s.Serve(http.NotFoundHandler(), secured())
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			again, err := Listen(Options{HTTP: s.HTTP(), HTTPS: s.HTTPS(), Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			if again.http3 == nil {
				t.Error("the UDP port is not free")
			}
			again.Shutdown(t.Context())
			select {
			case err := <-s.Failed():
				t.Errorf("Shutdown was reported as a failure: %v", err)
			default:
			}
		})
	}
}

func TestOff(t *testing.T) {
	s, err := Listen(Options{HTTP: "off", HTTPS: "off"})
	if err != nil || s.HTTP() != "" || s.HTTPS() != "" {
		t.Fatalf("with both addresses off, Listen returned %v, %v; want a server without addresses", s, err)
	}
	s.Serve(http.NotFoundHandler(), TLS{})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// The channel that Failed returns receives the error of a listener that fails.
func TestFailed(t *testing.T) {
	s := listen(t)
	s.http.listener.Close()
	s.Serve(http.NotFoundHandler(), secured())
	if err := <-s.Failed(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the channel received %v, want net.ErrClosed", err)
	}
	s.Shutdown(t.Context())
}
