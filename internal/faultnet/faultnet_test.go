package faultnet_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/faultnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB, o faultnet.Options) *faultnet.Proxy {
	t.Helper()
	p, err := faultnet.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// echo starts a server that sends every byte back.
func echo(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { defer c.Close(); io.Copy(c, c) })
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String()
}

func dial(t testing.TB, p *faultnet.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// round sends a text and expects the same text back.
func round(c net.Conn, text string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != text {
		return fmt.Errorf("got %q, want %q", b, text)
	}
	return nil
}

func TestConnections(t *testing.T) {
	p := start(t, faultnet.Options{Backend: echo(t)})
	c := dial(t, p)
	if err := round(c, "through"); err != nil {
		t.Fatal(err)
	}
	p.Set(faultnet.Conditions{BlackHole: true})
	if _, err := io.WriteString(c, "held"); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(make([]byte, 4)); err == nil {
		t.Errorf("%d bytes left the black hole", n)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	p.Set(faultnet.Conditions{})
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "held" {
		t.Errorf("after the black hole: %q, %v", b, err)
	}
	p.Reset()
	if err := round(c, "gone"); err == nil {
		t.Error("a connection outlived Reset")
	}
	p.Set(faultnet.Conditions{Refuse: true})
	if c, err := net.Dial("tcp", p.Address()); err == nil { // an error is fine too: the proxy closed the connection while it was being opened
		defer c.Close()
		if err := round(c, "refused"); err == nil {
			t.Error("a connection was not refused")
		}
	}
	if n := p.Opened(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A slow link is no faster than its rate, and data waits at least as long as Delay.
func TestSlow(t *testing.T) {
	p := start(t, faultnet.Options{Backend: echo(t)})
	c := dial(t, p)
	for _, x := range []struct {
		now   faultnet.Conditions
		bytes int
		least time.Duration
	}{
		{faultnet.Conditions{Rate: faultnet.Rate40kB}, 20_000, 400 * time.Millisecond},
		{faultnet.Conditions{Delay: 100 * time.Millisecond}, 10, 200 * time.Millisecond},
	} {
		p.Set(x.now)
		begin := time.Now()
		if err := round(c, strings.Repeat("x", x.bytes)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < x.least {
			t.Errorf("%+v: %d bytes took %v, want at least %v", x.now, x.bytes, took, x.least)
		}
	}
	if n := p.Sent(); n != 20_010 {
		t.Errorf("%d bytes were sent, want 20010", n)
	}
}

func TestGateway(t *testing.T) {
	var got atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s", got.Add(1), b)
	}))
	defer s.Close()
	config, trust, err := faultnet.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name  string
		o     faultnet.Options
		proto string
	}{
		{"cleartext HTTP/2", faultnet.Options{HTTP: true}, "HTTP/2.0"},
		{"HTTP/1.1 only", faultnet.Options{HTTP: true, HTTP1: true}, ""},
		{"TLS", faultnet.Options{HTTP: true, TLS: config}, "HTTP/2.0"},
	} {
		t.Run(x.name, func(t *testing.T) {
			got.Store(0)
			x.o.Backend = s.Listener.Addr().String()
			p := start(t, x.o)
			url := "http://" + p.Address()
			transport := &http.Transport{Protocols: new(http.Protocols)}
			defer transport.CloseIdleConnections()
			transport.Protocols.SetUnencryptedHTTP2(true)
			if x.o.TLS != nil {
				url = "https://" + p.Address()
				transport.Protocols.SetHTTP2(true)
				transport.TLSClientConfig = config.Clone()
				transport.TLSClientConfig.RootCAs = trust
			}
			post := func() (string, error) {
				req, _ := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader("body"))
				resp, err := transport.RoundTrip(req)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				return fmt.Sprintf("%s %d %s", resp.Proto, resp.StatusCode, b), err
			}
			text, err := post()
			if x.proto == "" {
				if err == nil {
					t.Errorf("a gateway without HTTP/2 answered an HTTP/2 request with %q", text)
				}
				return
			}
			if text != x.proto+" 200 1 body" {
				t.Errorf("got %q, %v; want %q", text, err, x.proto+" 200 1 body")
			}
			p.Set(faultnet.Conditions{Duplicate: true})
			if text, err := post(); text != x.proto+" 200 3 body" {
				t.Errorf("duplicated: got %q, %v; want the second response", text, err)
			}
			for status, want := range map[int]string{521: " 521 <html>", 404: " 404 <html>", 200: ` 200 {"status":"ok"}`} {
				p.Set(faultnet.Conditions{Answer: status})
				if text, err := post(); !strings.HasPrefix(text, x.proto+want) {
					t.Errorf("answer %d: got %q, %v", status, text, err)
				}
			}
			if n := got.Load(); n != 3 {
				t.Errorf("the server got %d requests, want 3", n)
			}
		})
	}
}

func TestPackets(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := start(t, faultnet.Options{Backend: server.LocalAddr().String(), UDP: true, Seed: 1})
	client, err := net.Dial("udp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	b := make([]byte, 10)
	p.Set(faultnet.Conditions{Loss: 1})
	client.Write([]byte("lost"))
	for p.Sent() < int64(len("lost")) { // wait until the proxy has dropped the packet
		runtime.Gosched()
	}
	p.Set(faultnet.Conditions{})
	for {
		client.Write([]byte("a"))
		server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, from, err := server.ReadFromUDPAddrPort(b)
		if err != nil {
			continue // send again, because a socket may drop packets
		}
		if string(b[:n]) == "lost" {
			t.Fatal("a lost packet arrived")
		}
		server.WriteToUDPAddrPort([]byte("b"), from)
		break
	}
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := client.Read(b); err != nil || string(b[:n]) != "b" {
		t.Errorf("the answer is %q, %v", b[:n], err)
	}
	p.Set(faultnet.Conditions{Reorder: 0.5})
	server.SetReadDeadline(time.Now().Add(time.Minute))
	for last := byte(0); ; {
		for i := range byte(200) {
			client.Write([]byte{i})
		}
		for range 100 {
			n, _, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				t.Fatal(err)
			}
			if n == 1 && b[0] < last {
				return // the packets were reordered
			}
			last = b[0]
		}
	}
}

// The same seed returns the same schedule.
func TestSchedule(t *testing.T) {
	if a, b := faultnet.Schedule(7, 20, true, false), faultnet.Schedule(7, 20, true, false); !reflect.DeepEqual(a, b) || len(a) != 41 {
		t.Errorf("the same seed returned different schedules:\n%v\n%v", a, b)
	}
	if a, b := faultnet.Schedule(7, 20, true, false), faultnet.Schedule(8, 20, true, false); reflect.DeepEqual(a, b) {
		t.Error("different seeds returned the same schedule")
	}
	p := start(t, faultnet.Options{Backend: echo(t)})
	p.Play(t.Context(), []faultnet.Step{{Conditions: faultnet.Conditions{Refuse: true}}, {}})
	if err := round(dial(t, p), "open again"); err != nil {
		t.Error(err)
	}
	if !bytes.Contains([]byte(faultnet.Step{Reset: true}.String()), []byte("reset=true")) {
		t.Error("String of a step is empty")
	}
}
