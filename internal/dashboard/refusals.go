package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/engine"
)

// Refused passwords appear in the audit log, but are stored separately: an attacker who guesses
// passwords must not push the operators' actions out of the log. All refusals from one address
// within an hour share one entry, and all entries share one document.

// maxRefusals is the number of entries that are kept.
const maxRefusals = 200

// refusal counts the refused passwords of one address within an hour.
type refusal struct {
	From    string    `json:"from"` // client address, or network of an IPv6 client
	What    string    `json:"what"` // signInRefused or changeRefused
	First   weir.Time `json:"first"`
	Last    weir.Time `json:"last"`
	Tries   int       `json:"tries"`
	Unheard int       `json:"unheard,omitempty"` // number of attempts that were throttled, so that their password was not checked
}

// refusals holds the latest entries, in no particular order.
type refusals struct {
	mu    sync.Mutex
	all   []*refusal
	dirty map[*refusal]bool // entries that changed since the last call of take

	storing sync.Mutex // held during each write to the store
}

// add counts a refusal. IPv6 clients are counted per /64 network. The name that was typed is not
// recorded, because people type passwords into the wrong field.
func (r *refusals) add(now time.Time, client netip.Addr, what string, unheard bool) {
	at, from := weir.TimeOf(now), access.Network(client).String()
	if client.Is6() {
		from += "/64"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.all, func(e *refusal) bool {
		return e.From == from && e.What == what && at.Std().Sub(e.First.Std()) < time.Hour
	})
	if i < 0 {
		if len(r.all) >= maxRefusals {
			oldest := slices.MinFunc(r.all, func(a, b *refusal) int { return cmp.Compare(a.Last, b.Last) })
			r.all = slices.DeleteFunc(r.all, func(e *refusal) bool { return e == oldest })
			delete(r.dirty, oldest)
		}
		i = len(r.all)
		r.all = append(r.all, &refusal{From: from, What: what, First: at})
	}
	e := r.all[i]
	e.Last = at
	if e.Tries++; unheard {
		e.Unheard++
	}
	r.dirty[e] = true
}

// unknownUser is the user that the audit log shows for a refusal.
const unknownUser = "unknown"

// entries returns the refusals as entries of the audit log.
func (r *refusals) entries() []entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []entry
	for _, e := range r.all {
		list = append(list, entry{At: e.Last, Who: unknownUser, From: e.From, What: e.What, Detail: e.detail()})
	}
	return list
}

func (e *refusal) detail() string {
	if e.Tries == 1 && e.Unheard == 0 {
		return ""
	}
	text := fmt.Sprintf("%d times since %s UTC", e.Tries, whenText(e.First))
	if e.Unheard > 0 {
		text += fmt.Sprintf(", %d of them throttled", e.Unheard)
	}
	return text
}

// take returns copies of all entries, and copies of the entries that changed since the last call of
// take. Both lists are nil if no entry changed.
func (r *refusals) take() (all, fresh []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.dirty) == 0 {
		return nil, nil
	}
	for _, e := range r.all {
		if all = append(all, *e); r.dirty[e] {
			fresh = append(fresh, *e)
		}
	}
	clear(r.dirty)
	return all, fresh
}

// refusalsKept returns the key of the document with the refusals of this node.
func (d *Dashboard) refusalsKept() string {
	if d.Node == "" {
		return RefusalsKey
	}
	return RefusalsKey + "/" + d.Node
}

// loadRefusals reads the stored entries.
func (d *Dashboard) loadRefusals(ctx context.Context) error {
	doc, err := d.Documents.Get(ctx, d.refusalsKept())
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", d.refusalsKept(), err)
	}
	if err := json.Unmarshal(doc.Value, &d.refusals.all); err != nil {
		d.Logger.Warn("skipped unreadable record of refused passwords", "document", d.refusalsKept(), "error", err)
		d.refusals.all = nil
	}
	d.refusals.all = slices.DeleteFunc(d.refusals.all, func(e *refusal) bool { return e == nil })
	return nil
}

// keepRefusals logs the entries that changed since the last call, and stores all entries unless the
// store refuses writes.
func (d *Dashboard) keepRefusals(ctx context.Context) {
	r := &d.refusals
	r.storing.Lock()
	defer r.storing.Unlock()
	all, fresh := r.take()
	for _, e := range fresh {
		d.Logger.Info("audit", "who", unknownUser, "from", e.From, "what", e.What, "tries", e.Tries)
	}
	if len(fresh) == 0 || !d.Writes() {
		return
	}
	value, err := json.Marshal(all)
	if err == nil {
		err = d.put(ctx, d.refusalsKept(), value)
	}
	if err != nil {
		d.Logger.Warn("failed to store refused passwords", "error", err)
	}
}
