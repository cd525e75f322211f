package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"weir/internal/engine"
)

const (
	watchSays = "Watch calls the function visit for every document that the prefixes select, and then for every change of such a document, no matter which process makes it: one call at a time, and in order of revisions."
	watchBy   = "If this process makes a change, visit receives it before any of three things happens: the method that makes the change returns, another method is refused because of the change, or Judge.Dropped is called."
	watchLast = "If changes of one document follow each other closely, visit may get only the last one."
	watchUpTo = "Watch returns when visit has received everything that was acknowledged to any client before the call."
	leftSays  = "The context of a change limits only how long the caller waits. If the context ends while the change is in flight, the change is still made or refused as if the caller were waiting, and watchers receive it."
	catchUp   = "CatchUp returns when watchers have received every change of a document that was acknowledged to any client before the call."
)

var watchCases = []testCase{
	{"a watcher receives all documents and then all changes", []string{watchSays, watchUpTo}, watchAll},
	{"a watcher receives only the documents that its prefixes select", []string{watchSays}, watchSome},
	{"a watcher receives a change before the call returns", []string{watchSays, watchBy, watchLast, catchUp}, watchBeforeAnswers},
	{"a watcher receives a deletion before Dropped is called", []string{
		watchBy, "Dropped reports that the log's document was deleted and the log with it. No method is called after it.",
	}, watchBeforeDropped},
	{"a change is made although its context has ended", []string{leftSays}, watchLeft},
	{"a watcher receives nothing after the store is closed", []string{"It is called until the store is closed."}, watchClosed},
}

// watcher records the changes that its method visit receives. It also records, as faults, the calls
// that package engine forbids.
type watcher struct {
	busy atomic.Bool
	mu   sync.Mutex
	last engine.Revision // revision of the last change
	docs map[string]engine.Document
	all  []engine.Change
	bad  []string
	news chan struct{} // closed at the next change
}

// watchAs starts a watcher on an engine, for the documents that the prefixes select, or for all. At the end of the case it reports the faults that the
// watcher recorded.
func (s *store) watchAs(e engine.Engine, of ...string) *watcher {
	s.Helper()
	if of == nil {
		of = engine.Everything
	}
	w := &watcher{docs: map[string]engine.Document{}, news: make(chan struct{})}
	if err := e.Watch(s.ctx, of, w.visit); err != nil {
		s.Fatalf("watch: %v", err)
	}
	s.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, fault := range w.bad {
			s.Error("watcher: " + fault)
		}
	})
	return w
}

func (w *watcher) visit(c engine.Change) {
	alone := w.busy.CompareAndSwap(false, true)
	defer w.busy.Store(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	known, had := w.docs[c.Key]
	switch {
	case !alone:
		w.bad = append(w.bad, "called twice at the same time")
	case c.Revision <= w.last:
		w.bad = append(w.bad, fmt.Sprintf("revision %d of %q after %d", c.Revision, c.Key, w.last))
	case c.Deleted && (c.Value != nil || had && c.Created != known.Created):
		w.bad = append(w.bad, fmt.Sprintf("deletion of %q with a value of %d bytes and Created %d, but the document was created at %d", c.Key, len(c.Value), c.Created, known.Created))
	}
	w.last = c.Revision
	w.all = append(w.all, c)
	if w.docs[c.Key] = c.Document; c.Deleted {
		delete(w.docs, c.Key)
	}
	close(w.news)
	w.news = make(chan struct{})
}

// knows returns the newest change of a key that the watcher has received.
func (w *watcher) knows(key string) (c engine.Change, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range slices.Backward(w.all) {
		if c.Key == key {
			return c, true
		}
	}
	return c, false
}

// awaitChange waits until the function wanted returns true for the newest change of the key that
// the watcher has received.
func (s *store) awaitChange(w *watcher, key string, wanted func(engine.Change) bool) {
	s.Helper()
	for {
		w.mu.Lock()
		news := w.news
		w.mu.Unlock()
		if c, ok := w.knows(key); ok && wanted(c) {
			return
		}
		s.await(news, "a change of "+key)
	}
}

// checkWatcher checks that the watcher knows exactly the documents that the store has.
func (s *store) checkWatcher(w *watcher) {
	s.Helper()
	if err := s.CatchUp(s.ctx); err != nil {
		s.Fatalf("catch up: %v", err)
	}
	list := s.list("", "", 10_000)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(list) != len(w.docs) {
		s.Errorf("the watcher knows %d documents, the store has %d", len(w.docs), len(list))
	}
	for _, doc := range list {
		s.sameDocument(w.docs[doc.Key], doc)
	}
}

func watchAll(s *store) {
	a := s.create("a", "1")
	b := s.create("b", "1")
	s.update(a, "2")
	s.delete("b", b.Revision)
	b = s.create("b", "2")
	s.create("c", "1")
	w := s.watchAs(s.Engine)
	var got []string
	for _, c := range w.all {
		got = append(got, fmt.Sprint(c.Key, " ", string(c.Value), " ", c.Deleted))
	}
	if want := []string{"a 2 false", "b 2 false", "c 1 false"}; !slices.Equal(got, want) {
		s.Fatalf("Watch visited %q, want %q", got, want)
	}
	b = s.update(b, "3")
	if c, _ := w.knows("b"); c.Deleted || c.Revision != b.Revision || string(c.Value) != "3" {
		s.Errorf("after an update the watcher knows %+v", c)
	}
	s.delete("b", 0)
	if c, _ := w.knows("b"); !c.Deleted || c.Revision <= b.Revision || c.Created != b.Created {
		s.Errorf("after a deletion the watcher knows %+v, want the deletion of the document created at %d", c, b.Created)
	}
	s.checkWatcher(w)
	s.reopen()
	again := s.watchAs(s.Engine)
	if len(again.all) != 2 {
		s.Errorf("after a restart Watch visited %d documents, want 2", len(again.all))
	}
	s.checkWatcher(again)
}

// watchSome uses prefixes that overlap, one that is a whole key, and one without a document.
func watchSome(s *store) {
	for _, key := range []string{"b/2", "c", "a/1", "b/1", "a", "b/1/x", "bb"} {
		s.create(key, "")
	}
	w := s.watchAs(s.Engine, "b/1", "missing/", "b/", "c")
	s.create("missing/1", "")
	s.create("a/2", "")
	s.delete("b/2", 0)
	s.delete("a/1", 0)
	var got []string
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.all {
		got = append(got, fmt.Sprint(c.Key, " ", c.Deleted))
	}
	if want := []string{"b/2 false", "c false", "b/1 false", "b/1/x false", "missing/1 false", "b/2 true"}; !slices.Equal(got, want) {
		s.Errorf("the watcher received %q, want %q", got, want)
	}
}

// watchBeforeAnswers changes a few documents from many goroutines. When a call returns, the watcher
// must already have received every change that the result depends on. A second watcher starts in
// between and must miss no change.
func watchBeforeAnswers(s *store) {
	w := s.watchAs(s.Engine)
	const keys, workers, rounds = 3, 8, 12
	atLeast := func(what, key string, rev engine.Revision) {
		if c, ok := w.knows(key); !ok || c.Revision < rev {
			s.Errorf("%s %s: the watcher knows revision %d, want at least %d", what, key, c.Revision, rev)
		}
	}
	var late *watcher
	s.parallel(workers+1, func(i int) {
		if i == workers {
			late = s.watchAs(s.Engine)
			return
		}
		for n := range rounds {
			key := fmt.Sprint("key ", (i+n)%keys)
			doc, err := s.Create(s.ctx, key, fmt.Append(nil, i, " ", n))
			switch {
			case err == nil:
				atLeast("created", key, doc.Revision)
			case !errors.Is(err, engine.ErrExists):
				s.Errorf("create: %v", err)
			default:
				if _, ok := w.knows(key); !ok {
					s.Errorf("create was refused because of %q, which the watcher does not know", key)
				}
				s.change(key, atLeast)
			}
			if err := s.CatchUp(s.ctx); err != nil {
				s.Errorf("catch up: %v", err)
			}
		}
	})
	s.checkWatcher(w)
	s.checkWatcher(late)
}

// change updates a document and then deletes it. It stops without a fault if another goroutine
// changes the document first.
func (s *store) change(key string, atLeast func(what, key string, rev engine.Revision)) {
	doc, err := s.Get(s.ctx, key)
	if err == nil {
		doc, err = s.Update(s.ctx, key, []byte("updated"), doc.Revision)
	}
	if err == nil {
		atLeast("updated", key, doc.Revision)
		err = s.Delete(s.ctx, key, doc.Revision)
	}
	if err == nil {
		atLeast("deleted", key, doc.Revision+1)
	}
	if err != nil && !errors.Is(err, engine.ErrConflict) && !errors.Is(err, engine.ErrNotFound) {
		s.Errorf("change %s: %v", key, err)
	}
}

func watchBeforeDropped(s *store) {
	w := s.watchAs(s.Engine)
	for i := range 20 {
		key := fmt.Sprint("stream ", i)
		j := counting(1)
		j.drop = func() {
			if c, ok := w.knows(key); !ok || !c.Deleted {
				j.fault("Dropped was called before the watcher received the deletion: the watcher knows %+v", c)
			}
		}
		_, log := s.stream(key, j)
		s.parallel(4, func(n int) {
			if n == 0 {
				s.delete(key, 0)
			} else if err := log.Append(s.ctx, batch(0, "x")); err != nil && !errors.Is(err, engine.ErrDropped) {
				s.Errorf("append: %v", err)
			}
		})
		s.await(j.over, "Dropped")
	}
}

func watchLeft(s *store) {
	w := s.watchAs(s.Engine)
	left := func(what string, err error) {
		s.Helper()
		if err != nil && !errors.Is(err, context.Canceled) {
			s.Fatalf("%s with a context that ended: %v", what, err)
		}
	}
	for i := range 10 {
		key := fmt.Sprint("stream ", i)
		_, err := s.Create(Leaving(s.ctx), key, []byte("created"))
		left("create", err)
		s.awaitChange(w, key, func(c engine.Change) bool { return string(c.Value) == "created" })
		doc, err := s.Get(s.ctx, key)
		if err != nil {
			s.Fatalf("get the document that was created with a context that ended: %v", err)
		}
		_, err = s.Create(s.ctx, key, nil)
		s.fails("create again", err, engine.ErrExists)
		_, err = s.Update(Leaving(s.ctx), key, []byte("updated"), doc.Revision)
		left("update", err)
		s.awaitChange(w, key, func(c engine.Change) bool { return string(c.Value) == "updated" })
		j := newJudge()
		log := s.open(doc.Created, j)
		left("delete", s.Delete(Leaving(s.ctx), key, 0))
		s.awaitChange(w, key, func(c engine.Change) bool { return c.Deleted })
		s.await(j.over, "Dropped")
		s.noLog(log)
	}
	s.checkWatcher(w)
}

func watchClosed(s *store) {
	w := s.watchAs(s.Engine)
	s.create("a", "")
	s.reopen()
	s.create("b", "")
	if _, ok := w.knows("b"); ok || len(w.all) != 1 {
		s.Errorf("the watcher of the closed store received %+v", w.all)
	}
}
