package loop

import (
	"errors"
	"net"
	"testing"
	"time"
)

// free is the record of a connection that counts towards no limit.
type free struct{}

func (free) Enter(Holder)   {}
func (free) Begin() bool    { return true }
func (free) Rest(time.Time) {}
func (free) Leave()         {}

// All loops get the same number of parked responses, even if each response belongs to a new
// connection, which a loop gets first.
func TestParkedResponsesAreSpread(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close() // the loops refuse this connection, which does not matter here

	ls := &Loops{all: []*loop{{}, {}, {}, {}}}
	parked := make([]int, len(ls.all))
	for range 100 {
		ls.Add(c.(*net.TCPConn), free{}, nil)
		ls.Park(&quiet{}, false, func() (*net.TCPConn, Place, []byte, error) {
			for i, l := range ls.all {
				parked[i] += len(l.guests)
			}
			return nil, nil, nil, errors.New("the connection is gone")
		})
	}
	for i, n := range parked {
		if n != 25 {
			t.Errorf("loop %d got %d of 100 parked responses, want 25", i, n)
		}
	}
}
