package trials

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"

	"weir/internal/contract"
)

// When a subscriber stops reading, the server disconnects it after the write timeout (D17). Other
// subscribers get every batch. The stalled subscribers use every transport, with the smallest
// windows and buffers possible. Some of them vanish without closing their connection.
func TestStalledReaders(t *testing.T) {
	if !*slow {
		t.Skip("takes minutes on two cores: -trials.slow runs it")
	}
	t.Parallel()
	s := serve(t, t.TempDir(), "--demo=false", "--rate-live", "0", "--write-timeout", "2s", "--metrics", "127.0.0.1:0")
	p := newBystanders(t, s)
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"stalled","mode":"raw"}`).ID
	const each = 100
	get := fmt.Sprintf("GET /v1/streams/%s?cursor=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", stream, liveKey)
	for range each {
		for _, proto := range []string{"", "http/1.1"} {
			conn := s.dial(t, proto)
			if clear, ok := conn.(*net.TCPConn); ok {
				clear.SetReadBuffer(1 << 10)
			} else {
				conn.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(1 << 10)
			}
			fmt.Fprint(conn, get)
		}
	}
	for _, proto := range http2Protocols {
		f := s.dialHTTP2(t, proto, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 10})
		for i := range uint32(each) {
			f.request(f.last+2*i+1|1, "/v1/streams/"+stream+"?cursor=0", "accept", "text/event-stream")
		}
		if err := f.send(); err != nil {
			t.Fatal(err)
		}
		go f.resets(each)
	}
	stall := func(client *http.Client) {
		target := s.over(t, contract.Transports[len(contract.Transports)-1])
		target.Client = func() *http.Client { return client }
		resp, cancel := contract.NewT(t, target).Open("/v1/streams/" + stream + "?cursor=0")
		t.Cleanup(cancel)
		t.Cleanup(func() { resp.Body.Close() })
	}
	tiny := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: s.trust(t)}, QUICConfig: &quic.Config{
		InitialStreamReceiveWindow: 1 << 10, MaxStreamReceiveWindow: 1 << 10}}
	t.Cleanup(func() { tiny.Close() })
	for range each {
		stall(&http.Client{Transport: tiny})
	}
	for range 5 {
		client, vanish := vanishing(t, s.trust(t))
		stall(client())
		vanish()
	}
	contract.Eventually(t, contract.Patience, "all subscriptions are open", func() bool { return s.metric(t, "weir_subscribers") == 7*each+5+len(contract.Transports) })
	for range 30 { // more data than all buffers hold
		c.Post(contract.NextPath(stream), contract.RawBody(contract.Filler(20<<10))).Want(202)
	}
	p.progress(10)
	contract.Eventually(t, time.Minute, "stalled subscribers are disconnected", func() bool { return s.metric(t, "weir_subscribers") == len(contract.Transports) })
}

// metric returns the value of a metric without labels.
func (s *server) metric(t testing.TB, name string) int {
	t.Helper()
	var at string
	for line := range strings.Lines(s.logged()) {
		var ready struct{ Msg, Metrics string }
		if json.Unmarshal([]byte(line), &ready) == nil && ready.Msg == "ready" {
			at = ready.Metrics
		}
	}
	resp, err := http.Get("http://" + strings.TrimPrefix(at, "http://") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	found := regexp.MustCompile(`(?m)^` + name + ` ([0-9.e+]+)$`).FindSubmatch(contract.ReadAll(resp))
	if found == nil {
		t.Fatalf("metric %s not found", name)
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(value)
}
