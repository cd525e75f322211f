package durable_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	"weir/internal/durable"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// hooked is an engine whose logs call functions of a test.
type hooked struct {
	engine.Engine
	scan    func() // called before a log is scanned
	trimmed func() // called after a log was trimmed
	written func() // called before an entry is written, unless nil
}

type hookedLog struct {
	engine.Log
	e *hooked
}

func (e *hooked) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &hookedLog{l, e}, err
}

func (l *hookedLog) Scan(ctx context.Context, start weir.Seq, run int, visit func(*engine.Entry) bool) error {
	l.e.scan()
	return l.Log.Scan(ctx, start, run, visit)
}

func (l *hookedLog) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	defer l.e.trimmed()
	return l.Log.Trim(ctx, low, note)
}

func (l *hookedLog) Append(ctx context.Context, e *engine.Entry) error {
	if l.e.written != nil {
		l.e.written()
	}
	return l.Log.Append(ctx, e)
}

func (l *hookedLog) Propose(e *engine.Entry, done func(error)) {
	if l.e.written != nil {
		l.e.written()
	}
	l.Log.Propose(e, done)
}

// A fork never has a hole: if the source evicts data during the copy, the fork is not made. A retry
// copies the data that the source still has.
func TestForkOfAnEvictingStream(t *testing.T) {
	trimmed := make(chan struct{}, 100)
	e := &hooked{Engine: memory.New(), scan: func() {}, trimmed: func() { trimmed <- struct{}{} }}
	s := servicetest.Start(t, servicetest.Options{Engine: e})
	key, raw := s.Key, []string{"Content-Type", "application/octet-stream"}
	made := send(t, "POST", s.URL()+"/v1/streams", key, `{"name":"small","mode":"raw","max_bytes":1048576}`, "Content-Type", "application/json").want(t, 201, "")
	_, rest, _ := strings.Cut(made.body, `"id":"`)
	source := s.URL() + "/ds/" + rest[:22]
	body := func(c string) string { return strings.Repeat(c, 500_000) }
	send(t, "POST", source, key, body("a"), raw...).want(t, 204, "")
	send(t, "POST", source, key, body("b"), raw...).want(t, 204, "")
	var once sync.Once
	e.scan = func() {
		once.Do(func() {
			send(t, "POST", source, key, body("c"), raw...).want(t, 204, "")
			<-trimmed
		})
	}
	fork := func() answer { return send(t, "PUT", s.URL()+"/ds/fork", key, "", "Stream-Forked-From", rest[:22]) }
	fork().want(t, 503, "")
	send(t, "GET", s.URL()+"/ds/fork", key, "").want(t, 404, "")
	fork().want(t, 201, "")
	if got := send(t, "GET", s.URL()+"/ds/fork?offset=-1", key, ""); got.body != body("b")+body("c") {
		t.Errorf("the fork has %d bytes that begin with %.1s, want the batches b and c", len(got.body), got.body)
	}
}

// A fork begins with the first stored batch of its source, even if the number of that batch is
// higher than a publisher may use in an empty stream.
func TestForkOfAStreamWithoutItsBeginning(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	source, err := s.Hub.Stream(s.NewStream(hub.Spec{Attributes: `{"type":"application/json"}`}))
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Begin(t.Context(), source, 5000); err != nil {
		t.Fatal(err)
	}
	path := s.URL() + "/ds/" + string(source.ID)
	for _, body := range []string{"[1,2]", "[3]"} {
		send(t, "POST", path, s.Key, body, "Content-Type", "application/json").want(t, 204, "")
	}
	for _, c := range []struct{ name, offset, want string }{
		{"whole", "", "[1,2,3]"},
		{"first", "0000000000005000_0000000000000000", "[1,2]"},
		{"none", "0000000000004000_0000000000000000", "[]"},
	} {
		fork, fields := s.URL()+"/ds/"+c.name, []string{"Stream-Forked-From", string(source.ID)}
		if c.offset != "" {
			fields = append(fields, "Stream-Fork-Offset", c.offset)
		}
		send(t, "PUT", fork, s.Key, "", fields...).want(t, 201, "")
		if got := send(t, "GET", fork+"?offset=-1", s.Key, ""); got.body != c.want {
			t.Errorf("fork %s: %d %s, want %s", c.name, got.status, got.body, c.want)
		}
		send(t, "POST", fork, s.Key, "[4]", "Content-Type", "application/json").want(t, 204, "")
	}
}

// Publishers of /v1 may leave gaps. A fork has the same gaps, but they are closed from the start.
// So everything that the fork inherits can be read at once, under the same offsets. If a fork
// inherits only a part of a batch, the part has the sequence of that batch.
func TestForkOfAStreamWithGaps(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", "1m"}})
	source, err := s.Hub.Stream(s.NewStream(hub.Spec{Attributes: `{"type":"application/json"}`}))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []weir.Seq{5, 6, 8, 10} {
		b := weir.Batch{Events: 2, Payload: fmt.Appendf(nil, "[%d,0]", seq)}
		if _, err := source.Publish(t.Context(), &hub.Publish{Chosen: true, Seq: seq, Batch: b}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := source.Close(t.Context()); err != nil { // closing a stream closes its gaps
		t.Fatal(err)
	}
	at := func(n int) string { return fmt.Sprintf("%016d_%016d", n, 0) }
	for _, c := range []struct {
		offset, sub string
		next        int    // number in the offset at the end of the fork
		from        int    // number in the offset at which the test reads the fork
		want        string // content that the test reads there
	}{
		{"", "", 10, 0, "[5,0,6,0,8,0,10,0]"},
		{at(8), "", 8, 6, "[8,0]"},
		{at(7), "1", 8, 6, "[8]"},
		{at(6), "1", 8, 6, "[8]"},
		{at(6), "", 6, 5, "[6,0]"},
		{at(9), "1", 10, 9, "[10]"},
	} {
		fields := []string{"Stream-Forked-From", string(source.ID)}
		if c.offset != "" {
			fields = append(fields, "Stream-Fork-Offset", c.offset)
		}
		if c.sub != "" {
			fields = append(fields, "Stream-Fork-Sub-Offset", c.sub)
		}
		fork := s.URL() + "/ds/fork" + c.offset + c.sub
		if a := send(t, "PUT", fork, s.Key, "", fields...).want(t, 201, ""); a.header.Get("Stream-Next-Offset") != at(c.next) {
			t.Errorf("%+v: the fork ends at %s", c, a.header.Get("Stream-Next-Offset"))
		}
		send(t, "GET", fork+"?offset="+at(c.from), s.Key, "").want(t, 200, c.want)
	}
}

// A stream whose first content is not complete does not exist yet, so no fork of it can be made.
func TestForkOfAPendingStream(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	id := string(s.NewStream(hub.Spec{Attributes: `{"type":"text/plain","pending":true}`}))
	send(t, "GET", s.URL()+"/ds/"+id, s.Key, "").want(t, 404, "")
	send(t, "PUT", s.URL()+"/ds/fork", s.Key, "", "Stream-Forked-From", id).want(t, 404, "")
}

// It may take long to store the first content of a stream. If a client repeats its PUT meanwhile,
// the server does not delete the stream as one that a crash has left behind.
func TestLongCopy(t *testing.T) {
	durable.SetSince(t, func(time.Time) time.Duration { return time.Hour })
	e := &hooked{Engine: memory.New(), scan: func() {}, trimmed: func() {}}
	s := servicetest.Start(t, servicetest.Options{Engine: e})
	source, fork := s.URL()+"/ds/source", s.URL()+"/ds/fork"
	send(t, "PUT", source, s.Key, "content", "Content-Type", "text/plain").want(t, 201, "")
	begun, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	e.written = func() {
		once.Do(func() { close(begun) })
		<-free
	}
	made := make(chan answer)
	put := func() answer { return send(t, "PUT", fork, s.Key, "", "Stream-Forked-From", "source") }
	go func() { made <- put() }()
	<-begun
	put().want(t, 503, "")
	send(t, "GET", fork, s.Key, "").want(t, 404, "")
	close(free)
	(<-made).want(t, 201, "")
	put().want(t, 200, "")
	send(t, "GET", fork, s.Key, "").want(t, 200, "content")
}

// Another node may be storing the first content of a stream. So a stream counts as one that a crash
// has left behind only if it has not grown for a minute.
func TestAbandoned(t *testing.T) {
	var grown atomic.Int64 // a time that SetSince makes less than a minute old
	durable.SetSince(t, func(when time.Time) time.Duration {
		if weir.TimeOf(when) == weir.Time(grown.Load()) {
			return 59 * time.Second
		}
		return 61 * time.Second
	})
	s := servicetest.Start(t, servicetest.Options{})
	stream, err := s.Hub.Stream(s.NewStream(hub.Spec{Attributes: `{"type":"text/plain","pending":true}`}))
	if err != nil {
		t.Fatal(err)
	}
	for grown.Load() <= int64(stream.CreatedAt) { // until a batch has a later time than the creation of the stream
		if _, err := stream.Publish(t.Context(), &hub.Publish{Batch: weir.Batch{Events: 1, Payload: []byte("[1]")}}); err != nil {
			t.Fatal(err)
		}
		c, err := stream.Cursor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		grown.Store(int64(c.UpdatedAt))
	}
	put := func() answer {
		return send(t, "PUT", s.URL()+"/ds/"+string(stream.ID), s.Key, "", "Content-Type", "text/plain")
	}
	put().want(t, 503, "")
	if _, err := s.Hub.Stream(stream.ID); err != nil {
		t.Errorf("a stream that grows was deleted: %v", err)
	}
	grown.Store(0)
	put().want(t, 503, "")
	if _, err := s.Hub.Stream(stream.ID); err == nil {
		t.Error("a stream that a crash left behind was not deleted")
	}
}
