// Package stream is the rules of one stream: what a publish becomes, which gaps wait and which are closed, what is
// evicted, and what a subscription is told next. It is a pure machine: entries and moments go in, verdicts come out.
// It does no I/O, reads no clock, takes no lock and starts no goroutine, so whoever applies the same entries in the
// same order stands in the same state: a process after a crash, every node of a cluster.
//
// A State remembers no single batch. It grows with the gaps and the idempotency keys of what is kept, never with the
// number of batches; the few questions that need the kept batches (Evict, Restore) are handed their headers.
//
// Two marks divide the sequences of a stream. Everything below Low is gone for good. Everything below Final is
// settled: stored, or closed (it will never be stored), or gone. Subscriptions read up to Final and wait there.
package stream

import (
	"time"

	"weir"
)

// Rules are the settings of a stream that its rules depend on.
type Rules struct {
	MaxBytes  int64         // of payload, all kept batches together (D12)
	Retention time.Duration // how long a batch can be read (D12)
	GapGrace  time.Duration // how long a missing sequence is waited for (D4)
}

// Header is what the rules know of one log entry: a batch, or the mark that gaps were closed.
type Header struct {
	Closed bool      // a marker: what is missing from First to Seq stays missing (D4)
	First  weir.Seq  // of a marker: the lowest sequence that it closes; of lost batches: the lowest that may be among them
	Seq    weir.Seq  // of a marker: the highest sequence that it closes; of lost batches: the highest
	Time   weir.Time // when it was stored; never decreases along the log (D14)
	Size   uint32    // bytes of payload (D11)
	Key    string    // idempotency key (D25)
	Late   bool      // stored below the cursor of its time
	Lost   bool      // all that is missing from First to Seq may have been stored, and a repair of the store had to give it up
}

// State is where one stream stands. It is not safe for use by several goroutines at once, but methods that only look
// (all but Apply, Due and Evict) may run beside each other.
type State struct {
	rules Rules

	ever   bool      // something was stored once: tells a cursor of 0 from no cursor
	zero   bool      // sequence 0 was stored once
	cursor weir.Seq  // the highest sequence ever stored (D1)
	stored weir.Time // when the batch at the cursor was stored; created_at before the first (D13)
	last   weir.Time // of the newest entry: no entry is stored before it (D14)
	low    weir.Seq  // every sequence below it is gone for good
	bytes  int64     // of the kept batches (D11)
	gaps   gaps      // what is missing from low to cursor
	lost   []gap     // batches that were stored and cannot be read any more; since is not used
	keys   keys      // idempotency keys of kept batches
}

// New is the state of a stream in which nothing was stored yet.
func New(r Rules, created weir.Time) *State {
	return &State{rules: r, stored: created, last: created}
}

// Cursor is the highest sequence ever stored and when that was; 0 and the stream's creation before the first (D13).
func (s *State) Cursor() weir.Cursor { return weir.Cursor{Cursor: s.cursor, UpdatedAt: s.stored} }

// Bytes is the sum of the kept payloads (D11).
func (s *State) Bytes() int64 { return s.bytes }

// Low is the mark below which everything is gone for good: evicted, or never stored and closed.
// What the log holds below it may be trimmed.
func (s *State) Low() weir.Seq { return s.low }

// Final is the mark below which nothing changes any more but by eviction: every sequence is stored, closed or gone.
func (s *State) Final() weir.Seq {
	if first, ok := s.gaps.firstOpen(); ok {
		return first.from
	}
	return s.next()
}

// next is the sequence above everything stored: 0 while nothing was.
func (s *State) next() weir.Seq {
	if !s.ever {
		return 0
	}
	return s.cursor + 1
}

// base is the lowest sequence that was or will be stored. Sequence 0 is never waited for (D4): when another one came
// first it is closed without ever having been there, and its absence is no loss to anybody.
func (s *State) base() weir.Seq {
	if s.ever && !s.zero {
		return 1
	}
	return 0
}

// clock is the moment that ages are measured at: a clock that stepped back makes nothing younger (D14).
func (s *State) clock(now weir.Time) weir.Time { return max(now, s.last) }

// Presence says what became of a sequence.
type Presence uint8

// What a reader of a single batch can be told (D12).
const (
	Unknown Presence = iota // never stored: above the cursor, or missing
	Kept                    // stored, and can be read
	Evicted                 // gone; or missing below a batch that is gone, which nobody remembers
	Lost                    // stored once, and given up when the store was repaired
)

// Lookup tells what became of a sequence. What is expired at this moment is Evicted only once Evict saw it.
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
