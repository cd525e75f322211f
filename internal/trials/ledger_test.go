package trials

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"weir/internal/contract"
)

// ledger is what clients know of the streams of a server that is killed again and again.
type ledger struct {
	mu      sync.Mutex
	streams map[string]*account
	cut     bool // the power is being cut: what is answered from here on was perhaps never stored
}

// account is what clients know of one stream.
type account struct {
	id      string
	keyed   bool
	created outcome // of the request that created it
	deleted outcome // of the one that deleted it; refused: nobody asked
	gone    bool    // found deleted: it never comes back

	batches map[int64]*publishes // by sequence, or by the number of the key
	seen    map[int64]sighting   // by subscribers
	log     map[int64]sighting   // as read after the last restart
	closed  map[int64]bool       // sequences that were refused for good
	next    int64                // number of the next publish
	cursor  int64                // highest that anybody was told
}

func newLedger() *ledger { return &ledger{streams: map[string]*account{}} }

// open enters a stream that is about to be created.
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

// all are the accounts, in no order.
func (l *ledger) all() []*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*account
	for _, a := range l.streams {
		list = append(list, a)
	}
	return list
}

// sure is the outcome that a client may rely on: none, once the power is being cut. With l.mu held.
func (l *ledger) sure(o outcome) outcome {
	if l.cut {
		return unknown
	}
	return o
}

// attempt enters a publish before it is sent.
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

// answer enters what became of a publish. It returns what is wrong with the answer itself.
func (l *ledger) answer(a *account, n int64, body string, out outcome, status int, k contract.Ack) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := a.batches[n]
	switch out = l.sure(out); {
	case out == unknown:
		return nil
	case out == refused && status == 409 && !a.keyed:
		if p.seq >= 0 {
			return fmt.Errorf("%s: sequence %d is stored, and was refused", a.id, n)
		}
		a.closed[n] = true
		return nil
	case out == refused && status == 404 && a.deleted != refused:
		return nil
	case out == refused:
		return fmt.Errorf("%s: publish %d was refused with %d", a.id, n, status)
	case a.closed[n]:
		return fmt.Errorf("%s: sequence %d was closed, and is taken again", a.id, n)
	case p.seq >= 0 && p.seq != k.Seq || !a.keyed && k.Seq != n:
		return fmt.Errorf("%s: publish %d is at %d, and was acknowledged at %d", a.id, n, p.seq, k.Seq)
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

// saw enters what a subscriber got.
func (l *ledger) saw(a *account, s sighting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		a.seen[s.seq] = s
		a.cursor = max(a.cursor, s.seq)
	}
}

// audit holds what a server has after a restart against what clients know, and enters it as the truth from here on.
func (a *account) audit(t testing.TB, log []sighting, cursor int64) {
	t.Helper()
	if cursor < a.cursor {
		t.Errorf("%s: the cursor was %d and is %d", a.id, a.cursor, cursor)
	}
	a.cursor = cursor
	now := make(map[int64]sighting, len(log))
	for _, s := range log {
		now[s.seq] = s
		if a.closed[s.seq] {
			t.Errorf("%s: sequence %d was refused, and is stored", a.id, s.seq)
		}
	}
	for what, earlier := range map[string]map[int64]sighting{"a subscriber saw": a.seen, "after an earlier restart there was": a.log} {
		for seq, s := range earlier {
			if now[seq] != s {
				t.Errorf("%s: %s batch %d of %s, and there is %+v", a.id, what, seq, s.ts, short(now[seq]))
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
			t.Errorf("%s: publish %d was acknowledged at %d, and is lost", a.id, n, p.seq)
		}
		if there && (p.winner != "" && s.events != p.winner || !slices.Contains(p.bodies, s.events)) {
			t.Errorf("%s: batch %d holds something else than was sent: %+v", a.id, at, short(s))
		}
		if other, twice := owners[at]; there && twice {
			t.Errorf("%s: publishes %d and %d are both at %d", a.id, n, other, at)
		}
		if there {
			owners[at] = n
		}
	}
	settled := now
	if a.keyed {
		settled = a.log // those of unknown keys are found when the key is used again, after this
	}
	for seq := range settled {
		if _, ok := owners[seq]; !ok {
			t.Errorf("%s: nobody published batch %d", a.id, seq)
		}
	}
	a.log, a.seen = now, map[int64]sighting{}
	if !a.keyed {
		a.next = cursor + 1
	}
}

func short(s sighting) sighting {
	s.events = contract.Shorten(s.events)
	return s
}
