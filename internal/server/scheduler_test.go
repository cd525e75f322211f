//lint:file-ignore SA1019 net/http accepts no write scheduler, see speakHTTP2

package server

import (
	"bytes"
	"fmt"
	"go/version"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// judge is a scheduler that checks every decision of the type scheduler against lists that are
// simple enough to be right.
type judge struct {
	scheduler http2.WriteScheduler
	report    func(format string, args ...any)
	blocks    bool                // the client's windows may be smaller than the responses
	pushed    func(id uint32)     // called for each DATA frame
	control   []string            // the texts of control frames, in order
	queues    map[uint32][]judged // the frames of each open stream, in order
	ring      []uint32            // the streams that have frames; the first has the next turn
}

// judged is a frame that a judge expects to be written.
type judged struct {
	text string // empty for DATA
	size int    // the number of bytes of DATA that remain
}

func (j *judge) OpenStream(id uint32, o http2.OpenStreamOptions) {
	j.queues[id] = nil
	j.scheduler.OpenStream(id, o)
}

func (j *judge) CloseStream(id uint32) {
	delete(j.queues, id)
	j.ring = slices.DeleteFunc(j.ring, func(other uint32) bool { return other == id })
	j.scheduler.CloseStream(id)
}

func (j *judge) AdjustStream(id uint32, p http2.PriorityParam) { j.scheduler.AdjustStream(id, p) }

func (j *judge) Push(f http2.FrameWriteRequest) {
	id, text := f.StreamID(), f.String()
	queue, open := j.queues[id]
	switch {
	case strings.Contains(text, "http2.StreamError"):
		j.control = append(j.control, text)
	case !open:
		j.control = append(j.control, text)
	default:
		if len(queue) == 0 {
			j.ring = append(j.ring, id)
		}
		one := judged{size: f.DataSize()}
		if one.size == 0 {
			one.text = text
		}
		j.queues[id] = append(queue, one)
	}
	j.scheduler.Push(f)
	if f.DataSize() > 0 && j.pushed != nil {
		j.pushed(id)
	}
}

func (j *judge) Pop() (http2.FrameWriteRequest, bool) {
	f, ok := j.scheduler.Pop()
	if len(j.control) > 0 {
		if !ok || f.String() != j.control[0] {
			j.report("Pop returned %v, %t, want the control frame %s", f, ok, j.control[0])
		}
		j.control = j.control[1:]
		return f, ok
	}
	for i, id := range j.ring {
		front := &j.queues[id][0]
		if !ok || f.StreamID() != id {
			if front.size == 0 {
				j.report("Pop returned %v, %t, want the frame %s, which needs no window", f, ok, front.text)
			} else if !j.blocks {
				j.report("Pop returned %v, %t, but it is the turn of stream %d", f, ok, id)
			}
			continue
		}
		j.ring = slices.Concat(j.ring[i+1:], j.ring[:i+1])
		switch n := f.DataSize(); {
		case front.size > n && n > 0:
			front.size -= n
			return f, ok
		case front.size != n || n == 0 && f.String() != front.text:
			j.report("Pop returned %v, want the frame %+v of the same stream", f, *front)
		}
		if j.queues[id] = j.queues[id][1:]; len(j.queues[id]) == 0 {
			j.ring = j.ring[:len(j.ring)-1]
		}
		return f, ok
	}
	if ok {
		j.report("Pop returned %v, which was not pushed", f)
	}
	return f, ok
}

// rawHTTP2 is a client that sends and reads single frames.
type rawHTTP2 struct {
	*http2.Framer
	conn net.Conn
	enc  *hpack.Encoder
	head bytes.Buffer
}

// needsScheduler skips a test if golang.org/x/net/http2 ignores the scheduler; see speakHTTP2.
func needsScheduler(t *testing.T) {
	t.Helper()
	if version.Compare(runtime.Version(), "go1.27") >= 0 {
		t.Skip("golang.org/x/net/http2 leaves all work to net/http")
	}
}

// The server uses its own scheduler with and without TLS.
func TestSchedulerInUse(t *testing.T) {
	needsScheduler(t)
	for _, name := range []string{"H2C", "HTTP2"} {
		w := wires[name]
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(debug.Stack()) })
		if _, stack := get(t, w.client(t), w.url(s)); !strings.Contains(stack, "golang.org/x/net/http2.") {
			t.Errorf("over %s, the handler was not called by golang.org/x/net/http2:\n%s", name, stack)
		}
	}
}

// serveJudged serves one connection with a judge, and returns the client's side of it.
func serveJudged(t *testing.T, j *judge, h http.HandlerFunc, settings ...http2.Setting) *rawHTTP2 {
	t.Helper()
	needsScheduler(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	j.scheduler, j.report, j.queues = newScheduler(), t.Errorf, map[uint32][]judged{}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var over sync.WaitGroup
	over.Go(func() {
		s := &http2.Server{NewWriteScheduler: func() http2.WriteScheduler { return j }, MaxConcurrentStreams: maxStreams}
		s.ServeConn(served, &http2.ServeConnOpts{Handler: h})
	})
	t.Cleanup(func() { conn.Close(); over.Wait() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	c := &rawHTTP2{Framer: http2.NewFramer(conn, conn), conn: conn}
	c.enc = hpack.NewEncoder(&c.head)
	io.WriteString(conn, http2.ClientPreface)
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// get sends a GET request.
func (c *rawHTTP2) get(id uint32, path string) {
	c.head.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", path}, {":authority", "x"}} {
		c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.head.Bytes(), EndStream: true, EndHeaders: true})
}

// pattern is the body of a response.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// sendPattern is a handler that sends as many bytes as the path says, in writes of different sizes.
func sendPattern(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil {
		panic(err)
	}
	b := pattern(n)
	for size := 1; len(b) > 0; size = size*3 + 1 {
		n := min(size, len(b), 40_000)
		if _, err := w.Write(b[:n]); err != nil {
			return
		}
		b = b[n:]
		http.NewResponseController(w).Flush()
	}
}

// Many streams of a connection get complete responses, in turns, whatever the client's windows
// allow and whichever streams it resets.
func TestSchedulerAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 16))
			window := []uint32{0, 1, 100, 5_000, 65_535, 1 << 30}[seed]
			j := &judge{blocks: window < 1<<30}
			c := serveJudged(t, j, sendPattern, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window},
				http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16 << 10})
			if !j.blocks {
				c.WriteWindowUpdate(0, 1<<30)
			}
			sizes, got, open := map[uint32]int{}, map[uint32][]byte{}, 0
			for i := range uint32(60) {
				id := 2*i + 1
				sizes[id] = rnd.IntN(30_000)
				c.get(id, fmt.Sprint("/", sizes[id]))
				open++
			}
			for id := uint32(1); id < 20; id += 6 {
				c.WriteRSTStream(id, http2.ErrCodeCancel)
				delete(sizes, id)
				open--
			}
			pings := 0
			for ended := 0; ended < open; {
				f, err := c.ReadFrame()
				if err != nil {
					t.Fatalf("reading a frame after %d of %d responses: %v", ended, open, err)
				}
				id := f.Header().StreamID
				switch f := f.(type) {
				case *http2.DataFrame:
					got[id] = append(got[id], f.Data()...)
					if n := uint32(len(f.Data())); n > 0 {
						c.WriteWindowUpdate(0, n) // the connection's window stays at 64 KiB
					}
					if f.StreamEnded() && sizes[id] == len(got[id]) {
						ended++
					}
				case *http2.SettingsFrame:
					if !f.IsAck() {
						c.WriteSettingsAck()
					}
					if j.blocks {
						for id := range sizes {
							c.WriteWindowUpdate(id, uint32(1+rnd.IntN(10_000)))
						}
					}
					c.WritePing(false, [8]byte{})
				case *http2.PingFrame:
					if pings++; pings == 1 && j.blocks { // by now, the responses have used up their first windows
						for id := range sizes {
							c.WriteWindowUpdate(id, 40_000)
						}
					}
				case *http2.HeadersFrame:
					if f.StreamEnded() && sizes[id] == 0 {
						ended++
					}
				}
			}
			for id, n := range sizes {
				if !bytes.Equal(got[id], pattern(n)) {
					t.Errorf("stream %d: %d bytes arrived, want %d, or they differ", id, len(got[id]), n)
				}
			}
		})
	}
}

// If a response waits for a window that the client never opens, its reset is still sent, and the
// other responses of the connection are not held up.
func TestResetOvertakes(t *testing.T) {
	waiting := make(chan struct{})
	j := &judge{blocks: true, pushed: func(id uint32) {
		if id == 1 {
			close(waiting)
		}
	}}
	c := serveJudged(t, j, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/2" {
			return
		}
		control, stopped := http.NewResponseController(w), make(chan struct{})
		go func() {
			defer close(stopped)
			<-waiting
			control.SetWriteDeadline(time.Unix(1, 0))
		}()
		io.WriteString(w, "x")
		control.Flush()
		<-stopped
	}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	c.get(1, "/1")
	asked, reset, other := false, false, false
	for !reset || !other {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("reset %t, other response %t: %v", reset, other, err)
		}
		if f.Header().StreamID == 1 && !asked { // the header fields, unless the reset has overtaken them too
			c.get(3, "/2")
			asked = true
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			other = other || f.StreamID == 3
		case *http2.RSTStreamFrame:
			reset = reset || f.StreamID == 1
		}
	}
}
