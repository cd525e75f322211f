package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
)

// NoteProgram counts an action that a program took with a key or a management token. A program may
// act very often, so in each hour only the first programNotes actions of each kind get entries of
// their own. For such an action, the result is a function that stores the entry and waits for the
// store. Its parameter who names the key or the token, and its parameter from is the address of the
// program. For a later action the result is nil, and programs.keep adds one entry for all later
// actions of the same kind. Each kind is limited separately, so that a program that creates many
// streams does not hide the id of a stream that it deletes.
func (d *Dashboard) NoteProgram(what string) func(ctx context.Context, who string, from netip.Addr, detail string) {
	if !d.programs.admit(d.Now(), what) {
		return nil
	}
	return func(ctx context.Context, who string, from netip.Addr, detail string) {
		d.note(ctx, entry{Who: who, From: from.String(), What: what, Detail: access.Redacted(detail), Program: true})
	}
}

const (
	// programNotes is the number of actions per hour, of each kind, that get an entry of their own.
	programNotes = 20

	// maxProgramAudit is the number of entries by programs that are kept, so that programs do not
	// push the entries of people out of the log.
	maxProgramAudit = maxAudit / 2
)

// programs counts the actions of programs in the current hour.
type programs struct {
	mu      sync.Mutex
	since   time.Time
	noted   map[string]int // number of actions with an entry, by the kind of action
	unnoted map[string]int // number of actions without an entry
}

// admit reports whether an action gets an entry. If not, it counts the action.
func (p *programs) admit(now time.Time, what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since, p.noted, p.unnoted = now, map[string]int{}, map[string]int{}
	}
	if p.noted[what] < programNotes {
		p.noted[what]++
		return true
	}
	p.unnoted[what]++
	return false
}

// take ends the current hour if it is over. If the parameter all is true, take ends the hour even
// if it is not over. It returns the actions that were only counted, and when the hour began.
func (p *programs) take(now time.Time, all bool) (unnoted map[string]int, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if age := now.Sub(p.since); !all && age >= 0 && age < time.Hour {
		return nil, p.since
	}
	unnoted, since = p.unnoted, p.since
	p.since, p.noted, p.unnoted = time.Time{}, nil, nil
	return unnoted, since
}

// keep adds one entry to the audit log for each kind of action that was only counted.
func (p *programs) keep(ctx context.Context, d *Dashboard, all bool) {
	unnoted, since := p.take(d.Now(), all)
	for _, what := range slices.Sorted(maps.Keys(unnoted)) {
		detail := fmt.Sprintf("%s more since %s UTC", numberText(unnoted[what]), whenText(weir.TimeOf(since)))
		noteUntil(ctx, d, entry{Who: "programs", What: what, Detail: detail, Program: true})
	}
}
