//lint:file-ignore SA1019 net/http accepts no write scheduler, see speakHTTP2

package server

import (
	"math"
	"net/http"
	"reflect"
	"strings"

	"golang.org/x/net/http2"
)

// speakHTTP2 makes a server use golang.org/x/net/http2 with a scheduler of type scheduler. net/http
// contains a copy of the same package, but accepts no scheduler. All other settings are those of
// the http.Server. Call speakHTTP2 before the server starts.
//
// With Go 1.27 or newer, golang.org/x/net/http2 leaves all work to net/http and ignores the
// scheduler. The server then works in the same way, but sending to subscribers takes more CPU time.
func speakHTTP2(s *http.Server) (*http2.Server, error) {
	h := &http2.Server{NewWriteScheduler: newScheduler}
	return h, http2.ConfigureServer(s, h)
}

// scheduler chooses the next frame that an HTTP/2 connection writes. Frames of the connection, such
// as SETTINGS and PING, come first, together with resets of streams. Then the streams that have
// frames take turns, one frame each. A DATA frame waits until its flow-control windows allow at
// least one byte.
//
// The schedulers of golang.org/x/net and net/http also take turns, but among all open streams, and
// they look at every one of them after each frame. A connection with a thousand subscriptions has a
// thousand open streams, but only a few of them have a frame at the same time.
//
// The methods are those of http2.WriteScheduler. They are never called concurrently.
type scheduler struct {
	control queue
	open    map[uint32]*outgoing
	first   *outgoing // the stream whose turn is next, in a ring of the streams that have frames; nil if there is none
}

// outgoing is an open stream. If it has frames, it is part of the ring.
type outgoing struct {
	queue
	before, after *outgoing // neighbours in the ring; nil if the stream has no frames
}

func newScheduler() http2.WriteScheduler { return &scheduler{open: make(map[uint32]*outgoing)} }

// OpenStream adds a stream.
func (s *scheduler) OpenStream(id uint32, _ http2.OpenStreamOptions) { s.open[id] = new(outgoing) }

// CloseStream removes a stream and discards its frames.
func (s *scheduler) CloseStream(id uint32) {
	if o := s.open[id]; o != nil {
		s.leave(o)
		delete(s.open, id)
	}
}

// AdjustStream ignores the priorities that clients ask for, as the scheduler of net/http does.
func (s *scheduler) AdjustStream(uint32, http2.PriorityParam) {}

// Push adds a frame.
func (s *scheduler) Push(f http2.FrameWriteRequest) {
	o := s.open[f.StreamID()] // nil if the frame belongs to the connection, or to a stream that was refused
	if o == nil || isReset(&f) {
		s.control.push(f)
		return
	}
	if o.push(f); o.after == nil {
		s.join(o)
	}
}

// isReset reports whether a frame of an open stream resets the stream. Such a frame does not wait
// for the frames before it, because those may wait for a window that the client never opens. It must
// also be written if the stream is closed meanwhile: http2 limits the number of resets in the
// scheduler, and counts a reset until Pop returns it. A reset has an id, but no stream. Only a
// private field shows that, or the text of the frame, which takes long to build.
func isReset(f *http2.FrameWriteRequest) bool {
	if hasStream && ofStream.Type.Kind() == reflect.Pointer {
		return reflect.ValueOf(f).Elem().Field(ofStream.Index[0]).IsNil()
	}
	return f.DataSize() == 0 && strings.HasSuffix(f.String(), "writer=http2.StreamError]")
}

var ofStream, hasStream = reflect.TypeFor[http2.FrameWriteRequest]().FieldByName("stream")

// Pop removes and returns the next frame. It returns false if there is no frame, or if all frames
// wait for a window.
func (s *scheduler) Pop() (http2.FrameWriteRequest, bool) {
	if !s.control.isEmpty() {
		return s.control.pop(), true
	}
	for o := s.first; o != nil; {
		now, rest, n := o.front().Consume(math.MaxInt32)
		switch n {
		case 0: // a window of the stream or of the connection is used up
			if o = o.after; o == s.first {
				return http2.FrameWriteRequest{}, false
			}
			continue
		case 1:
			o.pop()
		case 2: // the windows and the maximum frame size allow only a part of the frame
			*o.front() = rest
		}
		if s.first = o.after; o.isEmpty() {
			s.leave(o)
		}
		return now, true
	}
	return http2.FrameWriteRequest{}, false
}

// join adds a stream to the ring. All streams that are already in the ring have their turn first.
func (s *scheduler) join(o *outgoing) {
	if s.first == nil {
		o.before, o.after, s.first = o, o, o
		return
	}
	o.before, o.after = s.first.before, s.first
	o.before.after, o.after.before = o, o
}

// leave removes a stream from the ring, if it is part of it.
func (s *scheduler) leave(o *outgoing) {
	if o.after == nil {
		return
	}
	switch {
	case o.after == o:
		s.first = nil
	case s.first == o:
		s.first = o.after
	}
	o.before.after, o.after.before = o.after, o.before
	o.before, o.after = nil, nil
}

// queue is a list of frames. It uses its memory again when it is empty. A stream rarely has more
// than one frame, because its handler waits until a frame is written.
type queue struct {
	frames []http2.FrameWriteRequest
	next   int // index of the first frame
}

func (q *queue) isEmpty() bool { return q.next == len(q.frames) }

func (q *queue) push(f http2.FrameWriteRequest) { q.frames = append(q.frames, f) }

// front returns the first frame of a queue that is not empty.
func (q *queue) front() *http2.FrameWriteRequest { return &q.frames[q.next] }

// pop removes and returns the first frame of a queue that is not empty.
func (q *queue) pop() http2.FrameWriteRequest {
	f := q.frames[q.next]
	q.frames[q.next] = http2.FrameWriteRequest{} // frees the memory that the frame refers to
	if q.next++; q.isEmpty() {
		q.frames, q.next = q.frames[:0], 0
	}
	return f
}
