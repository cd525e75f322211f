package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"weir"
	"weir/internal/engine"
)

// log is the content of one log, open or closed. Each log belongs to one document of the engine.
type log struct {
	// The mutex called order is held during every call to the judge, so the judge sees one append
	// at a time. The order in which appends get this lock is the order of the log.
	order sync.Mutex

	// The lock mu guards the fields below. It is not held while a judge or a visitor runs, except
	// in Headers.
	mu      sync.Mutex
	entries []engine.Entry
	low     weir.Seq
	note    []byte
	open    *handle // the handle to which the judge is attached; nil while the log is not open
	over    error   // set when the log has ended: ErrClosed or ErrDropped
}

// handle is the engine.Log that one call of Open returns. After Close, every call of its methods
// fails.
type handle struct {
	*log
	judge engine.Judge
}

func (l *log) attach(id engine.LogID, judge engine.Judge) (engine.Log, error) {
	l.order.Lock()
	defer l.order.Unlock()
	if l.over != nil {
		return nil, l.over
	}
	if l.open != nil {
		panic(fmt.Sprintf("memory: log %d is already open", id))
	}
	h := &handle{log: l, judge: judge}
	restore := func(yield func(*engine.Header) bool) {
		for _, e := range l.entries {
			if h := e.Header.Restored(); !yield(&h) {
				return
			}
		}
	}
	if err := judge.Restore(l.note, restore); err != nil {
		return nil, fmt.Errorf("restore log %d: %w", id, err)
	}
	l.mu.Lock()
	l.open = h
	l.mu.Unlock()
	return h, nil
}

// drop ends the log and returns the handle that was attached to it. The caller holds log.order.
func (l *log) drop() *handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.open
	l.entries, l.open, l.over = nil, nil, engine.ErrDropped
	return h
}

// close ends the log because the engine closes. It waits for the append that holds the lock l.order.
// Appends that still wait for this lock fail.
func (l *log) close() {
	l.order.Lock()
	defer l.order.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.over = engine.ErrClosed
	}
}

// lock locks the log's mu, unless h is closed, the log has ended or ctx has ended. The caller must
// unlock it if lock returns no error.
func (h *handle) lock(ctx context.Context) error {
	h.mu.Lock()
	err := ctx.Err()
	if h.over != nil {
		err = h.over
	} else if h.open != h {
		err = engine.ErrClosed
	}
	if err != nil {
		h.mu.Unlock()
	}
	return err
}

// find returns the index of the first entry with sequence seq or higher, and whether the entry has
// exactly this sequence. If seq is below l.low, it searches for l.low, because all
// entries below l.low were trimmed.
func (l *log) find(seq weir.Seq) (int, bool) {
	return slices.BinarySearchFunc(l.entries, max(seq, l.low), func(e engine.Entry, seq weir.Seq) int {
		return cmp.Compare(e.Seq, seq)
	})
}

// Append waits for nothing but the judge.
func (h *handle) Append(ctx context.Context, e *engine.Entry) error { return h.append(ctx, e) }

// Propose calls done before it returns.
func (h *handle) Propose(e *engine.Entry, done func(error)) {
	done(h.append(context.Background(), e))
}

// append asks the judge and keeps a copy of the entry.
func (h *handle) append(ctx context.Context, e *engine.Entry) error {
	h.order.Lock()
	defer h.order.Unlock()
	if err := h.lock(ctx); err != nil {
		return err
	}
	h.mu.Unlock()
	if p, ok := e.Proposer.(engine.Placeable); ok {
		p.Placed() // its place in the log is certain: later appends wait for h.order
	}
	e.Size = uint32(len(e.Payload))
	if !h.judge.Admit(e) {
		return nil
	}
	kept := engine.Entry{Header: e.Header, Payload: bytes.Clone(e.Payload)}
	h.mu.Lock()
	i, found := h.find(e.Seq)
	trimmed := e.Seq < h.low
	if !found && !trimmed {
		h.entries = slices.Insert(h.entries, i, kept)
	}
	h.mu.Unlock()
	if found && !trimmed {
		panic(fmt.Sprintf("memory: sequence %d was admitted twice", e.Seq))
	}
	h.judge.Commit(1)
	return nil
}

// Read returns a copy of an entry.
func (h *handle) Read(ctx context.Context, seq weir.Seq) (engine.Entry, error) {
	e, err := h.get(ctx, seq)
	e.Payload = bytes.Clone(e.Payload)
	return e, err
}

// Header returns an entry without its payload.
func (h *handle) Header(ctx context.Context, seq weir.Seq) (engine.Header, error) {
	e, err := h.get(ctx, seq)
	return e.Header, err
}

func (h *handle) get(ctx context.Context, seq weir.Seq) (engine.Entry, error) {
	if err := h.lock(ctx); err != nil {
		return engine.Entry{}, err
	}
	defer h.mu.Unlock()
	i, found := h.find(seq)
	if !found || seq < h.low {
		return engine.Entry{}, engine.ErrNotFound
	}
	return h.entries[i], nil
}

// Scan locks the log again for each entry, so it does not visit entries that were trimmed in the
// meantime.
func (h *handle) Scan(ctx context.Context, start weir.Seq, _ int, visit func(*engine.Entry) bool) error {
	for {
		if err := h.lock(ctx); err != nil {
			return err
		}
		i, _ := h.find(start)
		if i == len(h.entries) {
			h.mu.Unlock()
			return nil
		}
		e := h.entries[i]
		h.mu.Unlock()
		if start = e.Seq + 1; !visit(&e) {
			return nil
		}
	}
}

// Headers holds the log's mu while it visits the entries.
func (h *handle) Headers(start weir.Seq, visit func(engine.Header) bool) {
	if h.lock(context.Background()) != nil {
		return
	}
	defer h.mu.Unlock()
	i, _ := h.find(start)
	for _, e := range h.entries[i:] {
		if !visit(engine.Header{Seq: e.Seq, Time: e.Time, Kind: e.Kind, Flags: e.Flags, Size: e.Size, KeySize: uint16(len(e.Key))}) {
			return
		}
	}
}

// Trim removes the entries below low.
func (h *handle) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	if err := h.lock(ctx); err != nil {
		return err
	}
	defer h.mu.Unlock()
	h.low = max(h.low, low)
	h.note = bytes.Clone(note)
	i, _ := h.find(0)
	h.entries = slices.Delete(h.entries, 0, i)
	return nil
}

// CatchUp waits for nothing, because no other process appends to this log.
func (h *handle) CatchUp(ctx context.Context) error {
	err := h.lock(ctx)
	if err == nil {
		h.mu.Unlock()
	}
	return err
}

// Attend does nothing, because no other process appends to this log.
func (h *handle) Attend() {}

// Leave does nothing, like Attend.
func (h *handle) Leave() {}

// Close detaches the judge.
func (h *handle) Close() error {
	h.order.Lock()
	defer h.order.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == h {
		h.open = nil
	}
	return nil
}
