package trials

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"weir/internal/contract"
)

// ledger records what clients know about the streams of a server that is killed again and again.
type ledger struct {
	mu      sync.Mutex
	streams map[string]*account
	cut     bool // the power cut has begun: even a batch that is acknowledged from now on may be lost
}

// account records what clients know about one stream.
type account struct {
	id      string
	keyed   bool    // the server chooses sequences, and publishes have idempotency keys
	created outcome // outcome of the request that creates the stream
	deleted outcome // outcome of the request that deletes the stream; refused if there was no such request
	gone    bool    // the stream did not exist after a restart, so it must never exist again

	batches map[int64]*publishes // by sequence, or by the number in the idempotency key
	seen    map[int64]sighting   // batches that subscribers saw since the last restart
	log     map[int64]sighting   // batches read after the last restart
	closed  map[int64]bool       // sequences in closed gaps: the server must never accept them again
	next    int64                // number of the next publish
	cursor  int64                // highest cursor that any client saw
}

func newLedger() *ledger { return &ledger{streams: map[string]*account{}} }

// open adds an account for a stream that is about to be created.
func (l *ledger) open(keyed bool) *account {
	a := &account{
		id: contract.NewID(), keyed: keyed, deleted: refused, next: 1, batches: map[int64]*publishes{}, seen: map[int64]sighting{},
		log: map[int64]sighting{}, closed: map[int64]bool{},
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[a.id] = a
	return a
}

// all returns the accounts, in no order.
func (l *ledger) all() []*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*account
	for _, a := range l.streams {
		list = append(list, a)
	}
	return list
}

// sure returns the outcome on which a client may rely. Once the power cut has begun, it returns
// unknown for every outcome, because then no response proves anything. The caller holds l.mu.
func (l *ledger) sure(o outcome) outcome {
	if l.cut {
		return unknown
	}
	return o
}

// attempt records a publish before it is sent.
func (l *ledger) attempt(a *account, n int64, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := a.batches[n]
	if p == nil {
		p = &publishes{seq: -1}
		a.batches[n] = p
	}
	p.bodies = append(p.bodies, body)
}

// answer records the outcome of a publish. It returns an error if the response contradicts earlier
// ones.
func (l *ledger) answer(a *account, n int64, body string, out outcome, status int, k contract.Ack) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := a.batches[n]
	switch out = l.sure(out); {
	case out == unknown:
		return nil
	case out == refused && status == 409 && !a.keyed:
		if p.seq >= 0 {
			return fmt.Errorf("%s: sequence %d is stored, but was refused", a.id, n)
		}
		a.closed[n] = true
		return nil
	case out == refused && status == 404 && a.deleted != refused:
		return nil
	case out == refused:
		return fmt.Errorf("%s: publish %d was refused with %d", a.id, n, status)
	case a.closed[n]:
		return fmt.Errorf("%s: sequence %d was closed, but is accepted", a.id, n)
	case p.seq >= 0 && p.seq != k.Seq || !a.keyed && k.Seq != n:
		return fmt.Errorf("%s: publish %d has sequence %d, but was acknowledged with %d", a.id, n, p.seq, k.Seq)
	case !k.Duplicate && p.winner != "":
		return fmt.Errorf("%s: publish %d was stored twice", a.id, n)
	case !k.Duplicate && p.seq >= 0:
		return fmt.Errorf("%s: publish %d was acknowledged as a duplicate, then stored", a.id, n)
	}
	p.seq = k.Seq
	if !k.Duplicate {
		p.winner = body
	}
	a.cursor = max(a.cursor, k.Cursor)
	return nil
}

// saw records a batch that a subscriber got.
func (l *ledger) saw(a *account, s sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		a.seen[s.seq] = s
		a.cursor = max(a.cursor, s.seq)
	}
}

// audit compares the batches of a restarted server with the account. Then it sets the account to
// the batches that the server has, because a batch that survived one restart must survive the next.
func (a *account) audit(t testing.TB, log []sighting, cursor int64) {
	t.Helper()
	if cursor < a.cursor {
		t.Errorf("%s: the cursor went down from %d to %d", a.id, a.cursor, cursor)
	}
	a.cursor = cursor
	now := make(map[int64]sighting, len(log))
	for _, s := range log {
		now[s.seq] = s
		if a.closed[s.seq] {
			t.Errorf("%s: sequence %d was refused, but is stored", a.id, s.seq)
		}
	}
	for what, earlier := range map[string]map[int64]sighting{"seen by a subscriber": a.seen, "read after the last restart": a.log} {
		for seq, s := range earlier {
			if now[seq] != s {
				t.Errorf("%s: batch %d was %s with ts %s, but is now %+v", a.id, seq, what, s.ts, short(now[seq]))
			}
		}
	}
	owners := map[int64]int64{}
	for n, p := range a.batches {
		at := n
		if a.keyed {
			at = p.seq
		}
		s, there := now[at]
		if p.seq >= 0 && !there {
			t.Errorf("%s: publish %d was acknowledged with sequence %d, but is lost", a.id, n, p.seq)
		}
		if there && (p.winner != "" && s.events != p.winner || !slices.Contains(p.bodies, s.events)) {
			t.Errorf("%s: batch %d holds bytes that no client sent: %+v", a.id, at, short(s))
		}
		if other, twice := owners[at]; there && twice {
			t.Errorf("%s: publishes %d and %d have the same sequence %d", a.id, n, other, at)
		}
		if there {
			owners[at] = n
		}
	}
	settled := now
	if a.keyed {
		settled = a.log // the sequence of a publish without a response becomes known only when the method retry repeats it
	}
	for seq := range settled {
		if _, ok := owners[seq]; !ok {
			t.Errorf("%s: batch %d is stored, but no client published it", a.id, seq)
		}
	}
	a.log, a.seen = now, map[int64]sighting{}
	if !a.keyed {
		a.next = cursor + 1
	}
}

// short shortens a sighting for messages.
func short(s sighting) sighting {
	s.events = contract.Shorten(s.events)
	return s
}
