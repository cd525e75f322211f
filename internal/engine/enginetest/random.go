package enginetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/engine"
)

var randomCases = []testCase{
	{"random calls against a model", []string{
		"Package engine defines the promises that storage keeps: ordered durable logs and small documents.",
	}, random},
}

// model is a store together with the documents and entries that it should hold.
type model struct {
	*store
	docs map[string]*modelDoc
	last engine.Revision // the highest revision so far
}

type modelDoc struct {
	engine.Document
	entries map[weir.Seq]engine.Entry
	low     weir.Seq
	note    []byte
	log     engine.Log // nil while it is not open
	judge   *judge
}

var modelKeys = []string{"a", "a/1", "a/2", "b", "ü"}

func random(s *store) {
	rapid.Check(s.T, func(t *rapid.T) {
		fixture := s.new(s.T)
		m := &model{
			store: &store{T: s.T, new: s.new, fixture: fixture, Engine: fixture.Open(s.T), ctx: s.ctx},
			docs:  map[string]*modelDoc{},
		}
		defer func() { m.Engine.Close() }()
		calls := map[string]func(*rapid.T){
			"create": m.randomCreate, "update": m.randomUpdate, "delete": m.randomDelete, "list": m.randomList,
			"append": m.randomAppend, "trim": m.randomTrim, "close": m.randomClose, "": m.check,
		}
		if fixture.Reopen != nil {
			calls["reopen"] = func(*rapid.T) { m.reopen(); m.detach() }
		}
		if fixture.Crash != nil {
			calls["crash"] = func(*rapid.T) { m.crash(); m.detach() }
		}
		t.Repeat(calls)
	})
}

// detach forgets the logs of an engine that was closed or crashed.
func (m *model) detach() {
	for _, d := range m.docs {
		d.log = nil
	}
}

func (m *model) key(t *rapid.T) string { return rapid.SampledFrom(modelKeys).Draw(t, "key") }

// pick draws an existing document and opens its log if needed.
func (m *model) pick(t *rapid.T) *modelDoc {
	if len(m.docs) == 0 {
		t.Skip("no document")
	}
	d := m.docs[rapid.SampledFrom(slices.Sorted(maps.Keys(m.docs))).Draw(t, "key")]
	m.attach(t, d)
	return d
}

func (m *model) attach(t *rapid.T, d *modelDoc) {
	if d.log != nil {
		return
	}
	j := newJudge()
	log, err := m.Open(m.ctx, d.Created, j)
	if err != nil {
		t.Fatalf("open %q: %v", d.Key, err)
	}
	known := maps.Clone(d.entries)
	j.admit = func(e *engine.Entry) bool {
		_, twice := known[e.Seq]
		known[e.Seq] = *e
		return !twice
	}
	if got, want := j.keptSeqs(), slices.Sorted(maps.Keys(d.entries)); !slices.Equal(got, want) || string(j.note) != string(d.note) {
		t.Fatalf("restore of %q: %v and note %q, want %v and %q", d.Key, got, j.note, want, d.note)
	}
	d.log, d.judge = log, j
}

func (m *model) changed(t *rapid.T, doc engine.Document) {
	if doc.Revision <= m.last {
		t.Fatalf("got revision %d after revision %d, want a higher one", doc.Revision, m.last)
	}
	m.last = doc.Revision
}

func (m *model) randomCreate(t *rapid.T) {
	key, value := m.key(t), rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "value")
	doc, err := m.Create(m.ctx, key, value)
	if m.docs[key] != nil {
		m.expect(t, "create", err, engine.ErrExists)
		return
	}
	m.expect(t, "create", err, nil)
	m.changed(t, doc)
	if doc.Created != engine.LogID(doc.Revision) {
		t.Fatalf("created %d at revision %d", doc.Created, doc.Revision)
	}
	m.docs[key] = &modelDoc{Document: doc, entries: map[weir.Seq]engine.Entry{}}
}

func (m *model) expect(t *rapid.T, what string, err, want error) {
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// revision draws either the current revision of d or a wrong one.
func (m *model) revision(t *rapid.T, d *modelDoc, other ...engine.Revision) engine.Revision {
	choice := append([]engine.Revision{m.last + 7}, other...)
	if d != nil {
		choice = append(choice, d.Revision, d.Revision, engine.Revision(d.Created))
	}
	return rapid.SampledFrom(choice).Draw(t, "revision")
}

func (m *model) randomUpdate(t *rapid.T) {
	key, value := m.key(t), rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "value")
	d := m.docs[key]
	rev := m.revision(t, d)
	doc, err := m.Update(m.ctx, key, value, rev)
	switch {
	case d == nil:
		m.expect(t, "update", err, engine.ErrNotFound)
	case rev != d.Revision:
		m.expect(t, "update", err, engine.ErrConflict)
	default:
		m.expect(t, "update", err, nil)
		m.changed(t, doc)
		d.Document.Value, d.Document.Revision = value, doc.Revision
	}
}

func (m *model) randomDelete(t *rapid.T) {
	key := m.key(t)
	d := m.docs[key]
	rev := m.revision(t, d, 0)
	err := m.Delete(m.ctx, key, rev)
	switch {
	case d == nil:
		m.expect(t, "delete", err, engine.ErrNotFound)
	case rev != 0 && rev != d.Revision:
		m.expect(t, "delete", err, engine.ErrConflict)
	default:
		m.expect(t, "delete", err, nil)
		delete(m.docs, key)
		if d.log != nil {
			m.await(d.judge.over, "Judge.Dropped")
			m.expect(t, "append to a dropped log", d.log.Append(m.ctx, batch(1, "")), engine.ErrDropped)
		}
		_, err = m.Open(m.ctx, d.Created, newJudge())
		m.expect(t, "open of a dropped log", err, engine.ErrDropped)
	}
}

func (m *model) randomList(t *rapid.T) {
	prefix := rapid.SampledFrom([]string{"", "a", "a/", "b", "z"}).Draw(t, "prefix")
	after := rapid.SampledFrom([]string{"", "a", "a/1", "c"}).Draw(t, "after")
	limit := rapid.IntRange(0, 6).Draw(t, "limit")
	docs, err := m.List(m.ctx, prefix, after, limit)
	m.expect(t, "list", err, nil)
	want := listing(slices.Sorted(maps.Keys(m.docs)), prefix, after, limit)
	if !slices.Equal(names(docs), want) {
		t.Fatalf("list %q after %q: %q, want %q", prefix, after, names(docs), want)
	}
}

// randomAppend appends up to five entries at the same time, some of them for the second time.
func (m *model) randomAppend(t *rapid.T) {
	d := m.pick(t)
	seqs := rapid.SliceOfNDistinct(rapid.Uint64Range(uint64(d.low), uint64(d.low)+25), 1, 5, rapid.ID).Draw(t, "seqs")
	errs := make([]error, len(seqs))
	m.parallel(len(seqs), func(i int) {
		seq := weir.Seq(seqs[i])
		errs[i] = d.log.Append(m.ctx, batch(seq, content(seq+weir.Seq(d.Created))))
	})
	for i, err := range errs {
		m.expect(t, "append", err, nil)
		seq := weir.Seq(seqs[i])
		if _, twice := d.entries[seq]; !twice {
			d.entries[seq] = *batch(seq, content(seq+weir.Seq(d.Created)))
		}
	}
}

func (m *model) randomTrim(t *rapid.T) {
	d := m.pick(t)
	low := weir.Seq(rapid.Uint64Range(0, uint64(d.low)+15).Draw(t, "low"))
	note := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "note")
	m.expect(t, "trim", d.log.Trim(m.ctx, low, note), nil)
	d.low, d.note = max(d.low, low), note
	maps.DeleteFunc(d.entries, func(seq weir.Seq, _ engine.Entry) bool { return seq < d.low })
}

func (m *model) randomClose(t *rapid.T) {
	d := m.pick(t)
	m.expect(t, "close", d.log.Close(), nil)
	d.log = nil
}

// check compares the whole store with the model.
func (m *model) check(t *rapid.T) {
	for _, key := range modelKeys {
		got, err := m.Get(m.ctx, key)
		d := m.docs[key]
		if d == nil {
			m.expect(t, "get", err, engine.ErrNotFound)
			continue
		}
		m.expect(t, "get", err, nil)
		if got.Revision != d.Revision || got.Created != d.Created || string(got.Value) != string(d.Value) {
			t.Fatalf("document %+v, want %+v", got, d.Document)
		}
		if d.log != nil {
			m.checkLog(t, d)
		}
	}
	if got := m.Status().State; got != engine.Ready {
		t.Fatalf("the store is in state %d, want Ready", got)
	}
}

func (m *model) checkLog(t *rapid.T, d *modelDoc) {
	want := slices.Sorted(maps.Keys(d.entries))
	i := 0
	err := d.log.Scan(m.ctx, 0, 0, func(e *engine.Entry) bool {
		if i >= len(want) || e.Header != d.entries[want[i]].Header || string(e.Payload) != string(d.entries[want[i]].Payload) {
			t.Fatalf("scan of %q: entry %d is %+v of %d bytes, want the sequences %v", d.Key, i, e.Header, len(e.Payload), want)
		}
		i++
		return true
	})
	m.expect(t, "scan", err, nil)
	if got := m.seqs(d.log); i != len(want) || !slices.Equal(got, want) {
		t.Fatalf("log of %q: scan visits %d, headers %v, want %v", d.Key, i, got, want)
	}
	for _, fault := range d.judge.found() {
		t.Fatal(fault)
	}
	if d.low > 0 {
		_, err := d.log.Read(m.ctx, d.low-1)
		m.expect(t, fmt.Sprint("read below ", d.low), err, engine.ErrNotFound)
	}
}
