package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"weir/internal/engine"
)

var documentCases = []testCase{
	{"create, get, update, delete", []string{
		"Create stores a document under a key that has none; ErrExists otherwise. The new document's revision is also the value of its field Created, which is the id of its log.",
		"Update replaces the value of the document if its revision is still rev. ErrConflict: it has another revision. ErrNotFound: there is no such document.",
		"Delete removes the document if its revision is still rev (any revision if rev is 0)",
		"ErrConflict and ErrNotFound are as for Update.",
		"Get returns the document; ErrNotFound if there is none.",
	}, documentLife},
	{"deletion with a reason", []string{
		"Expire does the same as Delete. In the Change that watchers receive, it sets the field Expired.",
	}, expired},
	{"a refused change changes nothing", []string{
		"ErrConflict: it has another revision. ErrNotFound: there is no such document.",
	}, documentRefused},
	{"documents of every size under every key", []string{
		"Documents are small records under string keys, each with the revision of its last change.",
		"Every change is durable when the call returns, and visible to every call that starts after that.",
	}, documentSizes},
	{"revisions never repeat", []string{
		"Revision counts the changes of all documents of a store. It is never used twice and never 0.",
	}, revisions},
	{"one of many updates at once succeeds", []string{
		"Update replaces the value of the document if its revision is still rev. ErrConflict: it has another revision. ErrNotFound: there is no such document.",
	}, oneUpdate},
	{"one of many creations and deletions at once succeeds", []string{
		"Create stores a document under a key that has none; ErrExists otherwise.",
		"Delete removes the document if its revision is still rev (any revision if rev is 0)",
	}, oneCreation},
	{"creations that are reported later", []string{
		"CreateLater does the same as Create, but does not wait.",
		"It reports the outcome by calling the function done exactly once, from any goroutine, with the error that Create would return.",
		"CreateLater may call done before it returns. It holds no lock during that call.",
		watchBy,
	}, createLater},
	{"documents with an ended context", []string{
		"Every change is durable when the call returns, and visible to every call that starts after that.",
	}, documentEnded},
}

// expired checks that Expire deletes under the same conditions as Delete, and that watchers can tell the
// two apart.
func expired(s *store) {
	w := s.watchAs(s.Engine)
	doc, log := s.stream("key", nil)
	s.append(log, batch(1, "entry"))
	s.fails("expire of another revision", s.Expire(s.ctx, "key", doc.Revision+1), engine.ErrConflict)
	s.fails("expire of another document", s.Expire(s.ctx, "other", 0), engine.ErrNotFound)
	s.document(doc)
	if err := s.Expire(s.ctx, "key", doc.Revision); err != nil {
		s.Fatalf("expire: %v", err)
	}
	if c, _ := w.knows("key"); !c.Deleted || !c.Expired || c.Created != doc.Created {
		s.Errorf("after Expire the watcher knows %+v", c)
	}
	s.noLog(log)
	s.fails("expire after expire", s.Expire(s.ctx, "key", doc.Revision), engine.ErrNotFound)
	s.create("key", "2")
	s.delete("key", 0)
	if c, _ := w.knows("key"); !c.Deleted || c.Expired {
		s.Errorf("after Delete the watcher knows %+v", c)
	}
}

// document checks the document stored under a key.
func (s *store) document(want engine.Document) {
	s.Helper()
	got, err := s.Get(s.ctx, want.Key)
	if err != nil {
		s.Fatalf("get %q: %v", want.Key, err)
	}
	s.sameDocument(got, want)
}

func (s *store) sameDocument(got, want engine.Document) {
	s.Helper()
	if got.Key != want.Key || got.Created != want.Created || got.Revision != want.Revision || !bytes.Equal(got.Value, want.Value) {
		s.Fatalf("document %q created %d revision %d with %d bytes, want %q %d %d with %d bytes", got.Key, got.Created,
			got.Revision, len(got.Value), want.Key, want.Created, want.Revision, len(want.Value))
	}
}

func (s *store) update(doc engine.Document, value string) engine.Document {
	s.Helper()
	next, err := s.Update(s.ctx, doc.Key, []byte(value), doc.Revision)
	if err != nil {
		s.Fatalf("update %q: %v", doc.Key, err)
	}
	return next
}

func (s *store) delete(key string, rev engine.Revision) {
	s.Helper()
	if err := s.Delete(s.ctx, key, rev); err != nil {
		s.Fatalf("delete %q: %v", key, err)
	}
}

func (s *store) fails(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

func documentLife(s *store) {
	_, err := s.Get(s.ctx, "key")
	s.fails("get before create", err, engine.ErrNotFound)
	doc := s.create("key", "one")
	s.sameDocument(doc, engine.Document{Key: "key", Value: []byte("one"), Created: doc.Created, Revision: engine.Revision(doc.Created)})
	s.document(doc)
	_, err = s.Create(s.ctx, "key", nil)
	s.fails("create again", err, engine.ErrExists)

	next := s.update(doc, "two")
	s.sameDocument(next, engine.Document{Key: "key", Value: []byte("two"), Created: doc.Created, Revision: next.Revision})
	s.document(next)
	_, err = s.Update(s.ctx, "key", nil, doc.Revision)
	s.fails("update of an old revision", err, engine.ErrConflict)
	s.fails("delete of an old revision", s.Delete(s.ctx, "key", doc.Revision), engine.ErrConflict)

	s.delete("key", next.Revision)
	_, err = s.Get(s.ctx, "key")
	s.fails("get after delete", err, engine.ErrNotFound)
	_, err = s.Update(s.ctx, "key", nil, next.Revision)
	s.fails("update after delete", err, engine.ErrNotFound)
	s.fails("delete after delete", s.Delete(s.ctx, "key", next.Revision), engine.ErrNotFound)
	s.fails("delete of any revision after delete", s.Delete(s.ctx, "key", 0), engine.ErrNotFound)

	again := s.create("key", "three")
	_, err = s.Update(s.ctx, "key", nil, next.Revision)
	s.fails("update of a revision older than the document", err, engine.ErrConflict)
	s.document(again)
	gone := s.create("gone", "")
	s.delete("gone", 0)
	s.reopen()
	s.document(again)
	_, err = s.Get(s.ctx, gone.Key)
	s.fails("get after delete and restart", err, engine.ErrNotFound)
	s.document(s.update(again, "four"))
}

func documentRefused(s *store) {
	doc := s.create("key", "value")
	other := s.create("other", "value")
	for _, rev := range []engine.Revision{0, doc.Revision + 100, other.Revision} {
		_, err := s.Update(s.ctx, "key", []byte("x"), rev)
		s.fails(fmt.Sprint("update of revision ", rev), err, engine.ErrConflict)
		if rev != 0 {
			s.fails(fmt.Sprint("delete of revision ", rev), s.Delete(s.ctx, "key", rev), engine.ErrConflict)
		}
	}
	_, err := s.Create(s.ctx, "key", []byte("x"))
	s.fails("create again", err, engine.ErrExists)
	_, err = s.Update(s.ctx, "none", []byte("x"), doc.Revision)
	s.fails("update of a missing document", err, engine.ErrNotFound)
	s.document(doc)
	s.document(other)
	s.reopen()
	s.document(doc)
	s.document(other)
	_, err = s.Get(s.ctx, "none")
	s.fails("get of a missing document", err, engine.ErrNotFound)
}

// keys are the keys of the test documents, in sorted order.
var keys = []string{
	" ", "*", ".", "/", "/a//b/", ">", "A", "Zürich", "a", "a b", "a.b", "a/b", "a\\b", "stream.*.>", "zürich", "Ω", "日本語", "𝄞",
}

func documentSizes(s *store) {
	var docs []engine.Document
	for i, key := range keys {
		docs = append(docs, s.create(key, fmt.Sprint("value ", i)))
	}
	docs = append(docs,
		s.create("empty", ""),
		s.create("binary", "\x00\xff\n\x80"),
		s.create("large", strings.Repeat("0123456789abcdef", engine.MaxValue/16)),
		s.create(strings.Repeat("k", engine.MaxKey), "long key"),
	)
	for _, doc := range docs {
		s.document(doc)
	}
	s.reopen()
	for i, doc := range docs {
		s.document(doc)
		docs[i] = s.update(doc, string(doc.Value[:len(doc.Value)/2]))
	}
	s.reopen()
	for _, doc := range docs {
		s.document(doc)
	}
}

func revisions(s *store) {
	var last engine.Revision
	rise := func(doc engine.Document) engine.Document {
		s.Helper()
		if doc.Revision <= last {
			s.Fatalf("got revision %d after revision %d, want a higher one", doc.Revision, last)
		}
		last = doc.Revision
		return doc
	}
	for range 3 {
		a := rise(s.create("a", "1"))
		b := rise(s.create("b", "1"))
		a = rise(s.update(a, "2"))
		s.delete("b", b.Revision)
		b = rise(s.create("b", "2"))
		b = rise(s.update(rise(s.update(b, "3")), "3"))
		s.delete("a", a.Revision)
		s.delete("b", 0)
	}
	s.reopen() // the documents with the highest revisions were deleted before, and their revisions must not be used again
	rise(s.create("c", ""))
	s.delete("c", 0)
	s.reopen()
	rise(s.create("c", ""))
}

func oneUpdate(s *store) {
	doc := s.create("counter", "0")
	const n = 40
	for round := range 10 {
		var won atomic.Int32
		s.parallel(n, func(i int) {
			next, err := s.Update(s.ctx, "counter", fmt.Append(nil, round, " ", i), doc.Revision)
			if err == nil {
				won.Add(1)
				got, err := s.Get(s.ctx, "counter")
				if err != nil || got.Revision != next.Revision {
					s.Errorf("get after update: revision %d, %v, want %d", got.Revision, err, next.Revision)
				}
			} else if !errors.Is(err, engine.ErrConflict) {
				s.Errorf("update: %v", err)
			}
		})
		if won.Load() != 1 {
			s.Fatalf("%d updates of one revision succeeded, want 1", won.Load())
		}
		doc, _ = s.Get(s.ctx, "counter")
	}
}

func oneCreation(s *store) {
	const n = 30
	for range 10 {
		var won atomic.Int32
		s.parallel(n, func(int) {
			_, err := s.Create(s.ctx, "key", nil)
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, engine.ErrExists) {
				s.Errorf("create: %v", err)
			}
		})
		if won.Swap(0) != 1 {
			s.Fatal("want exactly one successful creation")
		}
		s.parallel(n, func(int) {
			err := s.Delete(s.ctx, "key", 0)
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, engine.ErrNotFound) {
				s.Errorf("delete: %v", err)
			}
		})
		if won.Load() != 1 {
			s.Fatal("want exactly one successful deletion")
		}
	}
}

// createLater creates documents in several chains. It creates each document of a chain twice, as soon
// as both outcomes of the document before are reported. One of the two creations must be refused.
func createLater(s *store) {
	const chains, length = 8, 20
	w := s.watchAs(s)
	var left sync.WaitGroup
	left.Add(chains * length * 2)
	var next func(chain, i int)
	next = func(chain, i int) {
		key := fmt.Sprintf("chain%d/%d", chain, i)
		var calls, stored atomic.Int32
		done := func(err error) {
			defer left.Done()
			switch {
			case err == nil:
				stored.Add(1)
			case !errors.Is(err, engine.ErrExists):
				s.Errorf("create %q: %v", key, err)
			}
			if c, ok := w.knows(key); !ok || string(c.Value) != key {
				s.Errorf("%q was reported with %v, but the watcher knows the value %q, %v", key, err, c.Value, ok)
			}
			if calls.Add(1) < 2 {
				return
			}
			if stored.Load() != 1 {
				s.Errorf("%q was created %d times", key, stored.Load())
			}
			if i+1 < length {
				next(chain, i+1)
			}
		}
		s.CreateLater(key, []byte(key), done)
		s.CreateLater(key, []byte(key), done)
	}
	for chain := range chains {
		next(chain, 0)
	}
	all := make(chan struct{})
	go func() { left.Wait(); close(all) }()
	s.await(all, "the outcomes of all creations")
	s.reopen()
	for chain := range chains {
		for i := range length {
			key := fmt.Sprintf("chain%d/%d", chain, i)
			if doc, err := s.Get(s.ctx, key); err != nil || string(doc.Value) != key {
				s.Errorf("get %q: value %q, %v", key, doc.Value, err)
			}
		}
	}
	long, closed := make(chan error, 1), make(chan error, 1)
	s.CreateLater(strings.Repeat("k", engine.MaxKey+1), nil, func(err error) { long <- err })
	if err := <-long; err == nil {
		s.Error("a document with a key that is too long was created")
	}
	s.Close()
	s.CreateLater("late", nil, func(err error) { closed <- err })
	s.fails("create in a closed store", <-closed, engine.ErrClosed)
}

// documentEnded makes calls with a context that has ended. Package engine leaves their outcome
// open: a call does its work, or returns the context's error. After that error, the change may or
// may not have been made.
func documentEnded(s *store) {
	doc := s.create("key", "value")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, get := s.Get(ctx, "key")
	_, list := s.List(ctx, "", "", 10)
	_, create := s.Create(ctx, "new", nil)
	_, update := s.Update(ctx, "key", nil, doc.Revision)
	for what, err := range map[string]error{"get": get, "list": list, "create": create, "update": update} {
		if err != nil && !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Get(s.ctx, "key"); err != nil {
		s.Errorf("get: %v", err)
	}
}
