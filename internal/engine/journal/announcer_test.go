package journal

import (
	"sync"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// A document is a small record that owns a log, and a watcher is a function that is called for each
// change of a document. A slow watcher delays further changes, and the calls of Dropped for logs of
// deleted documents. It does not delay appends, trims or the opening of other logs.
func TestSlowWatcherDelaysNoAppend(t *testing.T) {
	j, err := Open(faulty.New(), small)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var docs []engine.Document
	var logs []engine.Log
	for _, key := range []string{"busy", "dropped", "opened later"} {
		doc, err := j.Create(background, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
	}
	for _, doc := range docs[:2] {
		log, err := j.Open(background, doc.Created, &fixed{})
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, log)
	}
	told, wait := make(chan string, 10), make(chan struct{})
	err = j.Watch(background, engine.Everything, func(c engine.Change) {
		told <- c.Key
		if c.Deleted {
			<-wait
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range docs {
		<-told
	}
	var changes sync.WaitGroup
	changes.Go(func() {
		if err := j.Delete(background, "dropped", 0); err != nil {
			t.Error(err)
		}
	})
	<-told // from here on, the watcher blocks in the call for the deletion
	changes.Go(func() {
		if _, err := j.Create(background, "behind it", nil); err != nil {
			t.Error(err)
		}
	})
	for seq := range weir.Seq(100) {
		if err := logs[0].Append(background, &engine.Entry{Header: engine.Header{Kind: engine.Batch, Seq: seq}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := logs[0].Trim(background, 50, nil); err != nil {
		t.Error(err)
	}
	log, err := j.Open(background, docs[2].Created, &fixed{})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(background, &engine.Entry{Header: engine.Header{Kind: engine.Batch}}); err != nil {
		t.Error(err)
	}
	if len(told) != 0 {
		t.Errorf("the watcher got %q while it was still handling the previous change", <-told)
	}
	close(wait)
	changes.Wait()
	if key := <-told; key != "behind it" {
		t.Errorf("the watcher got a change of %q, want one of \"behind it\"", key)
	}
}
