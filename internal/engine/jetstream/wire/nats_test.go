package wire

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/embedded"
	"weir/internal/natstest"
)

// acknowledged recognises the usual acknowledgement without decoding JSON, and accepts no other
// answer.
func TestAcknowledged(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	servers, err := Connect(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := servers.Create(t.Context(), jetstream.StreamConfig{Name: "stream", Subjects: []string{"subject"}}); err != nil {
		t.Fatal(err)
	}
	answer, err := nc.Request("subject", nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if seq, ok := acknowledged(answer.Data); !ok || seq != 1 {
		t.Errorf("the server's answer was not recognised: %s", answer.Data)
	}
	for answer, want := range map[string]uint64{
		`{"stream":"weir-log-0","seq":7}`:                        7,
		`{"stream":"weir-log-0", "seq":7}`:                       7,
		`{"stream":"weir-log-0","seq":17,"batch":"x","count":3}`: 17,
		`{"stream":"weir-log-0","domain":"x","seq":7}`:           0,
		`{"stream":"weir-log-0","seq":7,"domain":"x"}`:           7,
		`{"stream":"weir-log-0";"seq":7}`:                        0,
		`{"stream":"weir-log-0", "seq":7`:                        0,
		`{"stream":"weir-log-0", "seq":}`:                        0,
		`{"stream":"weir-log-0", "seq":0}`:                       0,
		`{"stream":"weir-log-0", "seq":7.5}`:                     0,
		`{"stream":"weir-log-0", "seq":99999999999999999999}`:    0,
		`{"stream":"weir-log-0", "seq":7,"error":{"code":400}}`:  0,
		`{"error":{"code":400},"stream":"weir-log-0","seq":0}`:   0,
		``: 0,
	} {
		if got, ok := acknowledged([]byte(answer)); ok != (want > 0) || ok && got != want {
			t.Errorf("%s: recognised: %v, sequence %d; want %d (0: not recognised)", answer, ok, got, want)
		}
	}
}

// stuck is a connection to a server. Writes wait while a test holds the lock.
type stuck struct {
	net.Conn
	gate  sync.Mutex
	begun chan struct{} // receives a value when a write begins
}

func (c *stuck) Write(p []byte) (int, error) {
	select {
	case c.begun <- struct{}{}:
	default:
	}
	c.gate.Lock()
	defer c.gate.Unlock()
	return c.Conn.Write(p)
}

// dialer is a nats.CustomDialer.
type dialer func(network, address string) (net.Conn, error)

func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// An event loop asks for the size of the largest message, so that must not wait for the network.
func TestMaxPayloadDoesNotWait(t *testing.T) {
	c := &stuck{begun: make(chan struct{}, 1)}
	nc, err := nats.Connect(natstest.Start(t, false).URL, nats.UserInfo("weir", "one"), nats.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		c.Conn = conn
		return c, err
	})))
	if err != nil {
		t.Fatal(err)
	}
	servers, err := Connect(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Fatal(err)
	}
	<-c.begun
	c.gate.Lock()
	if err := nc.Publish("subject", nil); err != nil {
		t.Fatal(err)
	}
	<-c.begun
	size := make(chan int64, 1)
	go func() { size <- servers.MaxPayload() }()
	select {
	case n := <-size:
		if n != 1<<20 {
			t.Errorf("the largest message has %d bytes", n)
		}
	case <-time.After(30 * time.Second):
		t.Error("MaxPayload waits for the network")
	}
	c.gate.Unlock()
}
