package enginetest

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

// judge is a Judge that records its calls. It reports every call that package engine forbids.
type judge struct {
	admit   func(e *engine.Entry) bool                   // decides about an entry; if nil, all entries are admitted
	restore func(entries iter.Seq[*engine.Header]) error // called by Restore; if nil, Restore collects all entries
	commit  func()                                       // called at the end of Commit unless nil
	drop    func()                                       // called at the beginning of Dropped unless nil
	log     atomic.Pointer[engine.Log]                   // the log of the judge, for calls of Headers inside Commit
	over    chan struct{}                                // closed by Dropped

	// These fields are set while a call is running. Admit and Commit may run at the same time, but
	// neither may run twice at once.
	admitting, committing atomic.Bool
	following             atomic.Bool // set during a call of a Follower method; no other call may run then

	mu        sync.Mutex
	faults    []string
	restored  bool
	note      []byte
	kept      []engine.Header // entries that Restore received
	admitted  []engine.Header // entries in the order in which they were admitted
	committed int             // number of admitted entries that Commit reported
	dropped   bool
}

func newJudge() *judge { return &judge{over: make(chan struct{})} }

// counting returns a judge that numbers entries one after the other, beginning with the parameter
// next. It ignores the sequence that an entry proposes.
func counting(next weir.Seq) *judge {
	j := newJudge()
	j.admit = func(e *engine.Entry) bool {
		e.Seq = next
		next++
		return true
	}
	return j
}

// enter marks the beginning of a call and records a fault if the call must not happen now. It
// returns false if another call is running that must not overlap with this one. The caller must
// then not read or change the state of the judge.
func (j *judge) enter(call string) bool {
	if !j.busy(call).CompareAndSwap(false, true) {
		j.fault("%s was called while another call was running", call)
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.following.Load() {
		j.faults = append(j.faults, call+" was called during a call of a Follower method")
	}
	if j.dropped {
		j.faults = append(j.faults, call+" was called after Dropped")
	}
	if j.restored == (call == "Restore") {
		j.faults = append(j.faults, call+" was called out of order: Restore must be called once, and first")
	}
	return true
}

func (j *judge) leave(call string) { j.busy(call).Store(false) }

func (j *judge) busy(call string) *atomic.Bool {
	if call == "Commit" {
		return &j.committing
	}
	return &j.admitting
}

func (j *judge) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, "judge: "+fmt.Sprintf(format, args...))
}

func (j *judge) found() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.faults)
}

// Restore stores the note and the headers.
func (j *judge) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	if !j.enter("Restore") {
		return nil
	}
	defer j.leave("Restore")
	j.mu.Lock()
	j.restored, j.note = true, slices.Clone(note)
	j.mu.Unlock()
	if j.restore != nil {
		return j.restore(entries)
	}
	for h := range entries {
		if n := len(j.kept); n > 0 && j.kept[n-1].Seq >= h.Seq {
			j.fault("Restore received entry %d after entry %d", h.Seq, j.kept[n-1].Seq)
		}
		j.kept = append(j.kept, *h)
	}
	return nil
}

// Admit records the entry's position.
func (j *judge) Admit(e *engine.Entry) bool {
	if !j.enter("Admit") {
		return false
	}
	defer j.leave("Admit")
	ok := j.admit == nil || j.admit(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	if ok {
		j.admitted = append(j.admitted, e.Header)
	}
	if p, is := e.Proposer.(*place); is {
		p.asked++
		p.stored, p.rests, p.seq = ok, len(j.admitted), e.Seq
	}
	return ok
}

// Commit records that n more admitted entries are durable.
func (j *judge) Commit(n int) {
	if !j.enter("Commit") {
		return
	}
	defer j.leave("Commit")
	j.mu.Lock()
	if j.committed += n; n < 1 || j.committed > len(j.admitted) {
		j.faults = append(j.faults, fmt.Sprintf("judge: Commit(%d) brings the total to %d of %d admitted", n, j.committed, len(j.admitted)))
	}
	j.mu.Unlock()
	if j.commit != nil {
		j.commit()
	}
}

// Dropped records that the log was dropped. It must be the last call.
func (j *judge) Dropped() {
	if !j.enter("Dropped") {
		return
	}
	defer j.leave("Dropped")
	if j.drop != nil {
		j.drop()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.dropped {
		close(j.over)
	}
	j.dropped = true
}

// rewind forgets the entries that were admitted and not committed.
func (j *judge) rewind() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.admitted = j.admitted[:j.committed]
}

// order returns the entries in the order in which they were admitted.
func (j *judge) order() []engine.Header {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.admitted)
}

// durable returns how many admitted entries Commit has reported.
func (j *judge) durable() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.committed
}

// newest returns the sequence that was admitted last.
func (j *judge) newest() weir.Seq {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.admitted) == 0 {
		return 0
	}
	return j.admitted[len(j.admitted)-1].Seq
}

// keptSeqs returns the sequences that Restore received.
func (j *judge) keptSeqs() []weir.Seq {
	var seqs []weir.Seq
	for _, h := range j.kept {
		seqs = append(seqs, h.Seq)
	}
	return seqs
}

// place is passed as Entry.Proposer. It records what the judge decided about its entry.
type place struct {
	asked  int      // how often the judge was asked
	stored bool     // the judge admitted the entry
	rests  int      // number of entries admitted so far, this one included; all must be durable before Append returns
	seq    weir.Seq // the sequence that the entry got
}

// settled is called after the Append of p's entry has returned nil. It checks that the judge was
// asked once, and that every entry on which its answer is based is durable.
func (j *judge) settled(p *place) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.asked != 1 {
		return fmt.Errorf("the judge was asked %d times, want once", p.asked)
	}
	if j.committed < p.rests {
		return fmt.Errorf("append returned before Commit: of the %[2]d entries that its answer is based on, %[1]d are durable", j.committed, p.rests)
	}
	return nil
}
