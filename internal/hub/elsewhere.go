package hub

import (
	"sync"
	"time"

	"weir"
)

// Nodes that share a store tell each other for which sequences they are receiving requests. So no
// node closes a gap while another node is still receiving the batch for it (D4).

const (
	tellEvery = 500 * time.Millisecond // time between two reports of a node
	heardFor  = 4 * tellEvery          // how long a report counts; it is repeated while the request is being received

	// The largest number of streams in one report, and of sequences per stream. Only requests of
	// slow clients or connections last much longer than tellEvery, so there are few at a time.
	mostTold    = 1000
	mostTellOne = 16
)

// Elsewhere exchanges these reports with the other nodes.
type Elsewhere struct {
	hub  *Hub
	tell time.Time // when the next report is due; used by Tell only
	from int       // index of the open stream with which the next report begins, if one report cannot hold all; used by Tell only

	mu    sync.Mutex
	heard map[weir.StreamID]time.Time // streams in the reports of other nodes, and until when the last report counts
}

// NewElsewhere returns an Elsewhere for a hub. A hub must not have two of them.
func NewElsewhere(h *Hub) *Elsewhere { return &Elsewhere{hub: h, heard: map[weir.StreamID]time.Time{}} }

// Tell returns a report for the other nodes: the sequences for which this node is receiving
// requests, by stream. It returns nil if there are none, or if the last report is too recent. The
// caller must call Tell at short intervals, because Tell also notices when reports of other nodes no
// longer count. Tell must not be called concurrently.
func (e *Elsewhere) Tell() (report map[weir.StreamID][]weir.Seq) {
	now := time.Now()
	for _, id := range e.ended(now) {
		e.keep(id, nil, now)
	}
	if now.Before(e.tell) {
		return nil
	}
	e.tell = now.Add(tellEvery)
	open := e.hub.catalog.open()
	for i := range open {
		s := open[(e.from+i)%len(open)]
		f := s.openFeed()
		if f == nil || f.way.holds.none() {
			continue
		}
		f.mu.Lock()
		seqs := f.way.holds.first(f.ahead, mostTellOne)
		f.mu.Unlock()
		if len(seqs) == 0 {
			continue
		}
		if report == nil {
			report = map[weir.StreamID][]weir.Seq{}
		}
		if report[s.ID] = seqs; len(report) == mostTold {
			e.from += i + 1
			break
		}
	}
	return report
}

// ended forgets and returns the streams whose reports no longer count.
func (e *Elsewhere) ended(now time.Time) (ids []weir.StreamID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, until := range e.heard {
		if !now.Before(until) {
			ids = append(ids, id)
			delete(e.heard, id)
		}
	}
	return ids
}

// Hear takes the report of another node.
func (e *Elsewhere) Hear(report map[weir.StreamID][]weir.Seq) {
	until := time.Now().Add(heardFor)
	for id, seqs := range report {
		if e.keep(id, seqs, until) {
			e.mu.Lock()
			e.heard[id] = until
			e.mu.Unlock()
		}
	}
}

// keep keeps sequences of a stream open until the given time, and finds the lowest held sequence of
// the stream again. It returns false if the log of the stream is not open: then this node closes no
// gap of the stream, and a gap gets its whole grace when the log is opened.
func (e *Elsewhere) keep(id weir.StreamID, seqs []weir.Seq, until time.Time) bool {
	s, err := e.hub.Stream(id)
	if err != nil {
		return false
	}
	f := s.openFeed()
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.way.holds.hear(seqs, until)
	f.updateHeld(e.hub.now())
	f.schedule()
	return true
}
