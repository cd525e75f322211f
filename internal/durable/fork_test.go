package durable_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// hooked is an engine whose logs call the function scan before they scan, and the function trimmed
// after they were trimmed.
type hooked struct {
	engine.Engine
	scan, trimmed func()
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

// A stream whose first content is not complete does not exist yet, so no fork of it can be made.
func TestForkOfAPendingStream(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	id := string(s.NewStream(hub.Spec{Attributes: `{"type":"text/plain","pending":true}`}))
	send(t, "GET", s.URL()+"/ds/"+id, s.Key, "").want(t, 404, "")
	send(t, "PUT", s.URL()+"/ds/fork", s.Key, "", "Stream-Forked-From", id).want(t, 404, "")
}
