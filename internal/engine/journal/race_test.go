package journal

import (
	"errors"
	"testing"

	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// queueTogether queues operations in one step, so that the committer decides them one after
// another, without other operations in between.
func (j *Journal) queueTogether(ops ...op) {
	j.queue.mu.Lock()
	j.queue.ops = append(j.queue.ops, ops...)
	j.queue.mu.Unlock()
	j.queue.signal.wake()
}

// awaitedOp is a change of a document. Its outcome can be received from a channel.
type awaitedOp struct {
	*documentOp
	done chan error
}

func newDocumentOp(j *Journal, c change, key, value string) awaitedOp {
	done := make(chan error, 1)
	return awaitedOp{&documentOp{
		j: j, change: c, key: key, value: []byte(value), sum: segments.Sum(0, []byte(value)), done: func(err error) { done <- err },
	}, done}
}

// TestDeleteOvertakesCreate deletes a document before its creation is durable.
func TestDeleteOvertakesCreate(t *testing.T) {
	fs := faulty.New()
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	create, remove := newDocumentOp(j, createDocument, "a", "x"), newDocumentOp(j, deleteDocument, "a", "")
	again, gone := newDocumentOp(j, createDocument, "a", "y"), newDocumentOp(j, deleteDocument, "a", "")
	// The caller that created the document may open its log before the deletion is durable.
	late := &lateOpen{j: j, creation: create.documentOp, done: make(chan error, 1)}
	j.queueTogether(create, remove, again, late, gone)
	for i, done := range []chan error{create.done, remove.done, again.done, gone.done} {
		if err := <-done; err != nil {
			t.Fatal(i, err)
		}
	}
	if err := <-late.done; !errors.Is(err, engine.ErrDropped) {
		t.Errorf("opening the log of a document that is being deleted: %v", err)
	}
	if _, err := j.Get(background, "a"); !errors.Is(err, engine.ErrNotFound) {
		t.Error(err)
	}
	for _, id := range []engine.LogID{create.result.Created, again.result.Created} {
		if _, err := j.Open(background, id, &fixed{}); !errors.Is(err, engine.ErrDropped) {
			t.Error(err)
		}
	}
	if err := j.exact(); err != nil {
		t.Error(err)
	}
	j.Close()
	if err := openAndVerify(fs, newHistory()); err != nil {
		t.Error(err)
	}
}

// lateOpen opens the log of a document whose creation was decided but is not durable yet.
type lateOpen struct {
	j        *Journal
	creation *documentOp
	done     chan error
}

func (o *lateOpen) bound() (int, int) { return 0, 0 }
func (o *lateOpen) class() class      { return freeing }
func (o *lateOpen) stage(*group) {
	go func() { // in another goroutine, because Open waits for the committer, and the committer waits until stage returns
		_, err := o.j.Open(background, o.creation.result.Created, &fixed{})
		o.done <- err
	}()
}
func (o *lateOpen) settle(*group) {}
func (o *lateOpen) finish(error)  {}
