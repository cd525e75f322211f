package trials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"weir/internal/contract"
)

var crowd = flag.Int("trials.crowd", 20, "number of subscribers per transport when the server restarts")

// drainGrace is the --shutdown-grace of the server in TestRestartUnderLoad.
const drainGrace = 30 * time.Second

// A server with many subscribers on every transport is stopped and started again while clients
// publish at full speed. The stopped server exits with 0 within its grace period. Every subscriber
// gets a retry time (D16) and reconnects, and no batch is lost or delivered twice (D4, D5).
func TestRestartUnderLoad(t *testing.T) {
	data := t.TempDir()
	flags := []string{"--rate-live", "0", "--demo=false", "--shutdown-grace", drainGrace.String()}
	s := serve(t, data, flags...)
	again := append(flags, "--http", strings.TrimPrefix(s.url, "http://"), "--https", strings.TrimPrefix(s.secure, "https://"))
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"restart"}`).ID
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	var readers, writers sync.WaitGroup
	audience := newAudience()
	var over atomic.Bool
	for i, by := range contract.Transports {
		url := s.url
		if by.Secure {
			url = s.secure
		}
		var client *http.Client
		for n := range *crowd {
			if n%50 == 0 { // a new client, because the number of requests in flight per connection is limited
				client = by.Client(s.trust(t))
				t.Cleanup(client.CloseIdleConnections)
			}
			m := &member{name: by.Name, url: url, client: client, audience: audience}
			audience.members = append(audience.members, m)
			readers.Go(func() {
				if err := m.follow(ctx, stream); err != nil {
					t.Errorf("%s: %v", m.name, err)
					cancel()
				}
			})
		}
		publisher := &caller{url, by.Client(s.trust(t))}
		t.Cleanup(publisher.client.CloseIdleConnections)
		writers.Go(func() {
			for n := 0; !over.Load() && ctx.Err() == nil; n++ {
				key := fmt.Sprintf("%d-%d", i, n)
				for { // repeats the publish until its outcome is known
					out, status, _ := publisher.publish(ctx, contract.NextPath(stream), key, `["`+key+`"]`)
					if out == refused {
						t.Errorf("a publish was refused with %d", status)
					}
					if out != unknown || ctx.Err() != nil {
						break
					}
					pause(ctx)
				}
			}
		})
	}
	audience.reach(ctx, t, 3)
	began := time.Now()
	s.stop(t)
	took := time.Since(began)
	t.Logf("stopped in %v with %d subscribers on each of %d transports", took, *crowd, len(contract.Transports))
	if took > drainGrace {
		t.Errorf("stopped in %v, longer than the grace period of %v", took, drainGrace)
	}
	if strings.Contains(s.logged(), "cut off") {
		t.Errorf("requests were cut off:\n%s", s.logged())
	}
	before := audience.slowest()
	began = time.Now()
	s = serve(t, data, again...)
	audience.reach(ctx, t, before+50)
	t.Logf("all subscribers resumed and got new batches within %v of the start", time.Since(began))
	over.Store(true)
	writers.Wait()
	var last struct{ Cursor int64 }
	if _, _, b := (&caller{s.url, contract.HTTP1()}).ask(ctx, "GET", "/v1/streams/"+stream+"/cursor", "", nil); json.Unmarshal(b, &last) != nil {
		t.Fatalf("get the cursor: %s", b)
	}
	audience.reach(ctx, t, last.Cursor)
	cancel()
	readers.Wait()
	audience.check(t)
	t.Logf("every subscriber saw all %d batches", last.Cursor)
}

// pause waits for a moment before a client reconnects or publishes again.
func pause(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}

// audience is all subscribers of a test.
type audience struct {
	members []*member
	moved   chan struct{} // gets a value when a subscriber gets a batch
}

func newAudience() *audience { return &audience{moved: make(chan struct{}, 1)} }

// slowest returns the last sequence of the subscriber that is furthest behind.
func (a *audience) slowest() int64 {
	return slices.MinFunc(a.members, func(x, y *member) int { return int(x.last.Load() - y.last.Load()) }).last.Load()
}

// reach waits until every subscriber has seen this sequence.
func (a *audience) reach(ctx context.Context, t testing.TB, seq int64) {
	t.Helper()
	for a.slowest() < seq {
		select {
		case <-a.moved:
		case <-ctx.Done():
			t.Fatalf("the slowest subscriber is at %d, want %d", a.slowest(), seq)
		}
	}
}

// check checks that every subscriber got a retry time, and that the retry times differ. If they
// were equal, all subscribers would reconnect at the same moment.
func (a *audience) check(t testing.TB) {
	t.Helper()
	told, times := map[string]int{}, map[int]bool{}
	for _, m := range a.members {
		if r := m.retry.Load(); r >= 500 && r <= 5000 {
			told[m.name]++
			times[int(r)] = true
		}
	}
	for _, by := range contract.Transports {
		if told[by.Name] != *crowd {
			t.Errorf("%s: %d of %d subscribers got a retry time", by.Name, told[by.Name], *crowd)
		}
	}
	if len(times) < len(a.members)/4 {
		t.Errorf("%d subscribers got only %d different retry times", len(a.members), len(times))
	}
}

// member is one subscriber. It reconnects and resumes when a response ends.
type member struct {
	name     string
	url      string
	client   *http.Client
	audience *audience
	last     atomic.Int64 // last sequence seen
	retry    atomic.Int64 // last retry time from a stopping server, in milliseconds
}

// follow subscribes again and again until the context ends.
func (m *member) follow(ctx context.Context, stream string) error {
	for ctx.Err() == nil {
		if err := m.subscribe(ctx, stream); err != nil {
			return err
		}
		pause(ctx) // a real client waits for the retry time; a shorter pause keeps the test short
	}
	return nil
}

// subscribe subscribes and reads to the end of the response. The server chooses the sequences, so
// each sequence must be one higher than the one before.
func (m *member) subscribe(ctx context.Context, stream string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", m.url+"/v1/streams/"+stream+"?cursor=0", nil)
	if err != nil {
		return err
	}
	req.Header = http.Header{"Authorization": {"Bearer " + liveKey}, "Accept": {"text/event-stream"}}
	if last := m.last.Load(); last > 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil // the server is down
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil // the server is stopping
	}
	d := contract.NewDecoder(resp.Body)
	greeted, told := false, false
	for {
		e, err := d.Next()
		switch {
		case err == io.EOF && told || ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("after batch %d the response ended with %w", m.last.Load(), err)
		case e.Retry >= 0 && !greeted:
			greeted = true
		case e.Retry >= 0:
			told = true
			m.retry.Store(int64(e.Retry))
		case e.Name == "batch":
			if e.ID != strconv.FormatInt(m.last.Load()+1, 10) {
				return fmt.Errorf("got batch %s after %d", e.ID, m.last.Load())
			}
			m.last.Add(1)
			select {
			case m.audience.moved <- struct{}{}:
			default:
			}
		case e.Name != "":
			return fmt.Errorf("got event %q: %s", e.Name, e.Data)
		}
	}
}

// The server stops in time even if some subscribers do not read and one has vanished (D17).
func TestStopWithStalledSubscribers(t *testing.T) {
	for _, by := range contract.Transports {
		t.Run(by.Name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, t.TempDir(), "--demo=false", "--shutdown-grace", "10s")
			target := s.over(t, by)
			var gone func()
			if by.Name == "HTTP3" {
				target.Client, gone = vanishing(t, s.trust(t))
			}
			c := contract.NewT(t, target)
			stream := contract.NewT(t, s.target()).CreateBody(`{"name":"stalled","mode":"raw"}`).ID
			resp, cancel := c.Open("/v1/streams/" + stream) // the test never reads the response
			defer cancel()
			defer resp.Body.Close()
			if gone != nil {
				gone()
			}
			other := contract.NewT(t, s.target())
			for range 10 {
				other.Post(contract.NextPath(stream), contract.RawBody(contract.Filler(contract.MiB))).Want(202)
			}
			began := time.Now()
			s.stop(t)
			t.Logf("stopped in %v", time.Since(began))
			if strings.Contains(s.logged(), "cut off") {
				t.Errorf("requests were cut off:\n%s", s.logged())
			}
		})
	}
}

// vanishing creates an HTTP/3 client. After the caller has called the function vanish, all packets
// to and from this client are dropped, as if its machine had lost power.
func vanishing(t testing.TB, trust *x509.CertPool) (client func() *http.Client, vanish func()) {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	hole := &blackHole{PacketConn: socket}
	transport := &quic.Transport{Conn: hole}
	t.Cleanup(func() { transport.Close(); socket.Close() })
	h3 := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: trust},
		Dial: func(ctx context.Context, addr string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
			to, err := net.ResolveUDPAddr("udp", addr)
			if err != nil {
				return nil, err
			}
			return transport.DialEarly(ctx, to, tlsConfig, config)
		}}
	return func() *http.Client { return &http.Client{Transport: h3} }, func() { hole.gone.Store(true) }
}

// blackHole is a socket that drops all packets after its field gone was set.
type blackHole struct {
	net.PacketConn
	gone atomic.Bool
}

func (b *blackHole) WriteTo(p []byte, to net.Addr) (int, error) {
	if b.gone.Load() {
		return len(p), nil
	}
	return b.PacketConn.WriteTo(p, to)
}

func (b *blackHole) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := b.PacketConn.ReadFrom(p)
		if err != nil || !b.gone.Load() {
			return n, from, err
		}
	}
}
