package jetstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/enginetest"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// fakeAnswers sends the given answers, one after the other, to the requests on a subject. The
// subject must belong to no stream, so that the server itself does not answer.
func fakeAnswers(t *testing.T, s *embedded.Server, subject string, answers ...string) {
	t.Helper()
	nc := connect(t, s)
	var mu sync.Mutex
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if len(answers) > 0 {
			m.Respond([]byte(answers[0]))
			answers = answers[1:]
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

const (
	sayInProcess = `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`
	sayConflict  = `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 0"}}`
	sayStored    = `{"stream":"s","seq":1}`
)

// There are two answers of a server after which the outcome of a write is still open: "another
// write is in flight", and "conflict" if no newer message exists. In both cases the node sends the
// write again.
func TestInProcess(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	defer e.Close()
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, e, doc.Created, &follower{})
	seize(l)
	l.subject = "elsewhere"
	fakeAnswers(t, s, l.subject, sayInProcess, sayConflict, sayStored)
	g := l.writer.decide([]*request{{entry: text("x")}})
	if others, err := l.writer.store(g); err != nil || others != nil || g.Records[0].At != 1 {
		t.Errorf("records of other nodes: %v, error: %v, stored at %d; want none, none and 1", others, err, g.Records[0].At)
	}
	l.subject = l.shard.subject(l.id)
	l.judge.(*follower).Rewind()
	l.start(time.Now())
	e.docs.Prefix = "documents.elsewhere."
	fakeAnswers(t, s, subjectOf(e, "b"), sayInProcess, sayInProcess, sayStored)
	if doc, err := e.Create(ctx, "b", nil); err != nil || doc.Created != 1 {
		t.Errorf("create: %+v, %v; want revision 1", doc, err)
	}
}

// A replica may show the first messages of a write while it is still adding the rest. If a node
// then looks for the outcome of its write, it waits for the rest. If it took the first messages for
// those of another node, it would store the entries a second time.
func TestPartOfOwnWrite(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	e := node(t, s, Options{Name: "store", Shards: 1, Patience: time.Minute})
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l, judge := openUnattended(t, e, doc.Created)
	seize(l)
	var requests []*request
	for range 2 {
		requests = append(requests, &request{entry: text(strings.Repeat("x", 128<<10)), size: 128 << 10, parts: 1})
	}
	g := l.writer.decide(requests)
	if len(g.Messages) != 2 {
		t.Fatalf("the write has %d messages, want 2", len(g.Messages))
	}
	stored := func(m *nats.Msg) {
		t.Helper()
		if _, err := e.client.Publish(ctx, []*nats.Msg{{Subject: m.Subject, Header: nats.Header{"Weir": m.Header["Weir"]}, Data: m.Data}}); err != nil {
			t.Fatal(err)
		}
	}
	stored(g.Messages[0])
	fences, err := connect(t, s).SubscribeSync(l.shard.Fence)
	if err != nil {
		t.Fatal(err)
	}
	var others []record.Record
	settled := make(chan error, 1)
	go func() {
		var err error
		others, err = l.writer.store(g)
		settled <- err
	}()
	// The node stores one fence (an empty message) when it starts to follow the shard, and one
	// whenever it looks for the messages of the log. So three fences show that it looks a second
	// time.
	awaitTrue(t, func() bool {
		n, _, err := fences.Pending()
		return err != nil || n >= 3 || len(settled) > 0
	})
	if len(settled) == 0 {
		stored(g.Messages[1])
	}
	if err := <-settled; err != nil || others != nil {
		t.Errorf("the method store returned %d records of another node and the error %v, want none", len(others), err)
	}
	if others == nil {
		l.writer.commit(g, time.Now())
	}
	l.start(time.Now())
	if !judge.knows(2)() {
		t.Errorf("the judge knows %d entries, want 2", judge.seen)
	}
}

// If another node has trimmed and purged an entry, a read reports the entry as not found and not as
// damaged. This holds even before this node has received the trim.
func TestPurgedBeforeFollowed(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	deaf, other := open(t, s, "store"), open(t, s, "store")
	defer deaf.Close()
	defer other.Close()
	doc, err := deaf.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, judge := attach(t, deaf, doc.Created, &follower{}), &follower{}
	b := attach(t, other, doc.Created, judge)
	for i := range 5 {
		if err := a.Append(ctx, text(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	deafen(deaf)
	judge.low = 3
	if err := b.Trim(ctx, 3, nil); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	floor := b.index.bottom()
	b.mu.Unlock()
	if floor <= b.index.floor {
		t.Errorf("all messages before %d were purged already, want some that are left to purge", floor)
	}
	b.purge(floor)
	read := make(chan error)
	go func() {
		_, err := a.Read(ctx, 1)
		read <- err
	}()
	listen(deaf) // the read does not find the entry, so it catches up, and for this it needs the subscription
	if err := <-read; !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("read: %v, want ErrNotFound", err)
	}
	if got := payloads(t, a); len(got) != 2 {
		t.Errorf("scan found %q, want 2 entries", got)
	}
}

func listen(e *Engine) {
	for _, s := range e.shards() {
		if s.Joined() {
			s.Listen()
		}
	}
	e.docs.Begin(ctx)
}

// subjectOf returns the subject of a document.
func subjectOf(e *Engine, key string) string {
	return e.docs.Prefix + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// The servers keep the marker of a deletion for a limited time. If a node received nothing for
// longer than that, it reads all documents again before it writes.
func TestLongSilence(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	a := node(t, s, Options{Name: "store", Shards: 2, Patience: time.Minute, silence: 3 * time.Second})
	b := open(t, s, "store")
	defer b.Close()
	var told []string
	err := a.Watch(ctx, engine.Everything, func(c engine.Change) { told = append(told, fmt.Sprint(c.Key, " ", c.Deleted)) })
	if err != nil {
		t.Fatal(err)
	}
	doc, err := a.Create(ctx, "gone", nil)
	if err == nil {
		_, err = a.Create(ctx, "stays", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	judge := &follower{}
	l := attach(t, a, doc.Created, judge)
	deafen(a)
	if err := b.Delete(ctx, "gone", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Create(ctx, "new", nil); err != nil {
		t.Fatal(err)
	}
	// Simulate that an hour has passed: the marker of the deleted document and the end marker of
	// its log have expired.
	sh := a.shard(doc.Created)
	if err := errors.Join(b.client.Clear(ctx, a.docs.Stream, subjectOf(a, "gone"), 0), b.client.Clear(ctx, sh.Stream, sh.subject(doc.Created), 0)); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, func() bool { return !a.docs.Certain() })
	appended := make(chan error)
	go func() { appended <- l.Append(ctx, text("into nothing")) }()
	listen(a)
	if err := <-appended; !errors.Is(err, engine.ErrDropped) {
		t.Errorf("append: %v, want ErrDropped", err)
	}
	<-l.gone
	if _, err := a.Get(ctx, "gone"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("get a deleted document: %v, want ErrNotFound", err)
	}
	for _, key := range []string{"stays", "new"} {
		if _, err := a.Get(ctx, key); err != nil {
			t.Errorf("get %s: %v", key, err)
		}
	}
	if got, want := fmt.Sprint(told), "[gone false stays false new false gone true]"; got != want {
		t.Errorf("watcher got %s, want %s", got, want)
	}
}

// A fence is an empty message that CatchUp stores and waits for. If it expires before it is
// delivered, the caller waits only until the next heartbeat.
func TestFenceExpired(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	defer e.Close()
	sh := e.shards()[0]
	sh.Join(ctx)
	defer sh.Unjoin()
	deafen(e)
	at, err := sh.Mark(ctx)
	if err == nil {
		err = e.client.Clear(ctx, sh.Stream, sh.Fence, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	listen(e)
	if err := sh.Reach(ctx, at); err != nil {
		t.Error(err)
	}
}

// After its caller has stopped waiting, a deletion continues until it has ended the log.
func TestDeleteContinuesInBackground(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, e, doc.Created, &follower{})
	if err := l.Append(ctx, text("x")); err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(enginetest.Leaving(ctx), "a", 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	e.Close() // Close waits for the deletion
	answer, err := connect(t, s).Request("$JS.API.STREAM.MSG.GET."+l.shard.Stream, fmt.Appendf(nil, `{"last_by_subj":%q}`, l.subject), time.Minute)
	var got struct{ Message struct{ Hdrs []byte } }
	if err == nil {
		err = json.Unmarshal(answer.Data, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := nats.DecodeHeadersMsg(got.Message.Hdrs)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := record.Decode(h, 1, record.Tagged); err != nil || r[0].Kind != record.Dropped {
		t.Errorf("the last message of the log is %+v, %v; want the end marker", r, err)
	}
}

// If a node deleted a document but did not end its log, the method orphans ends the log. It changes
// no other log.
func TestOrphans(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	defer e.Close()
	logs := map[string]*log{}
	for _, key := range []string{"stays", "gone", "ended"} {
		doc, err := e.Create(ctx, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		logs[key] = attach(t, e, doc.Created, &follower{})
		if err := errors.Join(logs[key].Append(ctx, text("one")), logs[key].Append(ctx, text("two"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Delete(ctx, "ended", 0); err != nil {
		t.Fatal(err)
	}
	// Simulate a node that died after deleting the document and before ending the log.
	m := &nats.Msg{Subject: subjectOf(e, "gone"), Header: nats.Header{"KV-Operation": {"DEL"}}}
	if _, err := e.client.Publish(ctx, []*nats.Msg{m}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.orphans(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]int{"stays": 2, "gone": 1, "ended": 1} {
		l := logs[key]
		all, err := l.shard.Records(ctx, l.subject, 1, 0)
		if err != nil || len(all) != want || (all[0].Kind == record.Dropped) != (want == 1) {
			t.Errorf("log %s has the records %+v, %v; want %d records (a single record must be the end marker)", key, all, err, want)
		}
	}
}

// One replica may have delivered an entry that the other replicas do not have yet. A read does not
// take this for damage, but waits for the entry.
func TestReadFromLaggingReplica(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	// The line must deliver the fence that the read stores, however long that takes: the worker, which
	// would read the message otherwise, does not run.
	e := node(t, s, Options{Name: "store", Shards: 2, Patience: time.Minute, hearing: time.Minute})
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, e, doc.Created, &follower{})
	awaitTrue(t, l.shard.Live)
	seize(l)
	defer l.start(time.Now())
	last, err := l.shard.Mark(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g := l.writer.decide([]*request{{entry: text("early")}})
	m := g.Records[0]
	m.At = last + 10
	l.mu.Lock()
	l.index.insert(m)
	l.mu.Unlock()
	over, cancel := context.WithCancel(ctx)
	read := make(chan error, 1)
	go func() {
		defer cancel()
		_, err := l.Read(ctx, m.Seq)
		read <- err
	}()
	l.shard.Reach(over, last+1) // wait until the read, which did not find the entry, has stored a fence to catch up
	for at := last; at < m.At-1; {
		if at, err = l.shard.Mark(ctx); err != nil {
			t.Fatal(err)
		}
	}
	g.Messages[0].Header.Del("Nats-Expected-Last-Subject-Sequence")
	if at, err := e.client.Publish(ctx, g.Messages); err != nil || at != m.At {
		t.Fatalf("stored at %d, %v; want %d", at, err, m.At)
	}
	awaitRecords(l, 1)
	l.mu.Lock()
	l.told = m.At // the read may still be catching up, and then waits until the worker has told the judge
	l.tell()
	l.mu.Unlock()
	if err := <-read; err != nil {
		t.Errorf("read: %v", err)
	}
}

// If another node has just created a stream and a server does not know it yet, the node asks again.
func TestStreamNotKnownYet(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	defer e.Close()
	nc := connect(t, s)
	asked, err := nc.SubscribeSync("$JS.API.STREAM.INFO.store-log-7")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan error)
	go func() {
		_, err := openShard(ctx, e, 7)
		begun <- err
	}()
	for range 2 { // the server answered the first request with "no such stream", so there must be a second one
		if _, err := asked.NextMsg(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.client.Create(ctx, jetstream.StreamConfig{Name: "store-log-7", Subjects: []string{"elsewhere.7"}}); err != nil {
		t.Fatal(err)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}

// deposed answers the question for the last message of a subject from old data, as a server does
// that was replaced as leader and does not know it yet.
type deposed struct {
	wire.Servers
	old atomic.Pointer[wire.Stored]
}

func (d *deposed) Message(ctx context.Context, stream string, q wire.Query) (wire.Stored, error) {
	if old := d.old.Load(); old != nil && q.LastFor == old.Subject {
		return *old, nil
	}
	return d.Servers.Message(ctx, stream, q)
}

// A document that was deleted can be created again, even if the server that answers next does not
// know of the deletion yet.
func TestCreateWithDeposedLeader(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	late := &deposed{Servers: servers}
	e, err := OpenOn(ctx, late, Options{Name: "store", Shards: 1, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	doc, err := e.Create(ctx, "a", []byte("first"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := servers.Message(ctx, e.docs.Stream, wire.Query{Seq: uint64(doc.Revision)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	late.old.Store(&old)
	if doc, err = e.Create(ctx, "a", []byte("second")); err != nil || string(doc.Value) != "second" {
		t.Errorf("create again: %+v, %v", doc, err)
	}
}
