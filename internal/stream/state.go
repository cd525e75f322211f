// Package stream implements the rules of one stream: whether a publish is stored, which gaps are
// open or closed, which batches are evicted, and what a subscription receives next. It is a state
// machine whose only inputs are log entries and times. It does no I/O, reads no clock, takes no
// lock and starts no goroutine. So processes that apply the same entries in the same order reach
// the same state: a process that restarts after a crash, and the other nodes of a cluster.
//
// A State does not remember individual batches. It grows with the number of gaps, idempotency keys
// and producers, never with the number of batches. The few operations that need the batches (Evict,
// Restore) receive their headers as an argument.
//
// Two marks divide the sequences of a stream. Below Low, everything was evicted or closed. Below
// Final, every sequence is settled: stored, evicted, or closed, which means that it will never be
// stored. A subscription that started below Final reads up to Final and waits there. A subscription
// that started above an open gap is not held up by that gap: it reads up to the next open gap above
// its start.
package stream

import (
	"time"

	"weir"
)

// Rules are the settings that the state machine depends on.
type Rules struct {
	MaxBytes  int64         // maximum total charge of all kept batches (D12); see Header.charge
	Retention time.Duration // time for which a batch can be read (D12)
	GapGrace  time.Duration // time for which a missing sequence can still be filled (D4)
	Keys      int           // number of idempotency keys of evicted batches that are remembered (D25)
}

// Header describes one log entry: a batch, a marker that closes gaps, or a run of lost batches.
type Header struct {
	Closed  bool      // a marker: sequences from First to Seq that are missing will never be stored (D4)
	First   weir.Seq  // markers and lost batches only: lowest sequence of the range
	Seq     weir.Seq  // sequence of the batch; for markers and lost batches, highest sequence of the range
	Time    weir.Time // when the entry was stored; never decreases in log order (D14)
	Size    uint32    // bytes of payload (D11)
	Key     digest    // digest of the idempotency key (D25); zero if there is no key, or if the state need not remember it
	KeySize uint16    // size of the idempotency key in bytes
	Count   uint32    // number of events in the batch; only needed with a key
	Late    bool      // the batch was below the cursor when it was stored, so it filled a gap
	Lost    bool      // a run of lost batches: the sequences from First to Seq may have been stored, but a repair gave them up
	Writer  *Writer   // who wrote the entry; nil if the entry has no writer
	Ends    bool      // the stream was closed with this entry, which is the last one (D37); see close.go
}

// charge is the number of bytes that a batch counts towards MaxBytes: the larger of its size and
// weir.MinCharge, plus the size of its key (D12). A marker or a lost batch counts as 0.
func (h *Header) charge() int64 {
	if h.Closed || h.Lost {
		return 0
	}
	return max(int64(h.Size), weir.MinCharge) + int64(h.KeySize)
}

// State is the state of one stream. The methods Decide, Apply, Follow, Due, Pause, Evict, EvictBelow,
// Raise and Back, and the functions Begin and SetBounds, need exclusive access. The others only read
// and may run concurrently.
type State struct {
	rules Rules

	ever   bool      // a batch has been stored; the cursor does not show this, because it may still be 0 afterwards
	ended  bool      // the stream was closed (D37), so no entry follows
	zero   bool      // sequence 0 was stored
	cursor weir.Seq  // the highest sequence ever stored (D1)
	stored weir.Time // when the batch at the cursor was stored; before the first batch, created_at (D13)
	last   weir.Time // time of the newest entry; no later entry has an earlier time (D14)
	low    weir.Seq  // every sequence below low was evicted or closed
	bytes  int64     // payload bytes of the kept batches (D11)
	charge int64     // total charge of the kept batches (D12)
	gaps   gaps      // missing sequences from low to cursor
	lost   []gap     // ranges of lost batches; their graceStart is not used
	wrote  *writers  // producers and the last order mark (writers.go); nil if there are none
	keys   *keys     // idempotency keys, also of some evicted batches (D25); nil if there are none
}

// New returns the state of a stream without batches.
func New(r Rules, created weir.Time) *State {
	return &State{rules: r, stored: created, last: created}
}

// Cursor returns the highest sequence ever stored and when it was stored. Before the first batch it
// returns 0 and the creation time of the stream (D13).
func (s *State) Cursor() weir.Cursor { return weir.Cursor{Cursor: s.cursor, UpdatedAt: s.stored} }

// Bytes returns the payload bytes of all kept batches (D11).
func (s *State) Bytes() int64 { return s.bytes }

// Charge returns how many bytes all kept batches together count towards MaxBytes (D12).
func Charge(s *State) int64 { return s.charge }

// Keeps reports whether the state has any batches that can be evicted. Lost batches count.
func Keeps(s *State) bool { return s.low < s.next() }

// Newest returns the time of the newest entry, or the creation time of the stream if it is later.
func Newest(s *State) weir.Time { return s.last }

// Low returns the mark below which every sequence was evicted or closed. The log may trim its
// entries below this mark.
func (s *State) Low() weir.Seq { return s.low }

// Final returns the mark below which every sequence is stored, closed or evicted. Below this mark,
// only eviction changes anything.
func (s *State) Final() weir.Seq {
	if first, ok := s.gaps.firstOpen(); ok {
		return first.from
	}
	return s.next()
}

// next is the sequence above all stored sequences, or 0 before the first batch.
func (s *State) next() weir.Seq {
	if !s.ever {
		return 0
	}
	return s.cursor + 1
}

// base is the lowest sequence that was or can be stored. Sequence 0 is never waited for (D4): if
// another sequence was stored first, 0 is closed, and subscribers get no gap event for it.
func (s *State) base() weir.Seq {
	if s.ever && !s.zero {
		return 1
	}
	return 0
}

// clock returns the time from which ages are measured: now, or the time of the newest entry if that
// is later. So batches do not become younger when the system clock steps back (D14).
func (s *State) clock(now weir.Time) weir.Time { return max(now, s.last) }

// Presence reports whether a sequence can be read, and if not, why.
type Presence uint8

// The results of Lookup (D12).
const (
	Unknown Presence = iota // never stored: above the cursor, or missing
	Kept                    // stored and readable
	Evicted                 // below the low mark: evicted, or missing below an evicted batch
	Lost                    // stored once, but given up by a repair of the store
)

// Lookup reports whether a sequence can be read. An expired batch counts as Kept until Evict has
// evicted it.
func (s *State) Lookup(seq weir.Seq) Presence {
	switch {
	case seq < s.base() || seq >= s.next():
		return Unknown
	case seq < s.low:
		return Evicted
	case s.gaps.at(seq) != filled:
		return Unknown
	case s.isLost(seq):
		return Lost
	}
	return Kept
}
