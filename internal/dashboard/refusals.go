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

// Passwords that were refused. They are shown in the audit log, but kept apart from it: whoever guesses must not be able to
// wash away what was done. Those of one address within an hour are one entry, and all of them one document.

// maxRefusals is how many entries are kept.
const maxRefusals = 200

// refusal is what was refused to an address within an hour.
type refusal struct {
	From    string    `json:"from"`
	What    string    `json:"what"`
	First   weir.Time `json:"first"`
	Last    weir.Time `json:"last"`
	Tries   int       `json:"tries"`
	Unheard int       `json:"unheard,omitempty"` // of them: not even looked at, because there were too many
}

// refusals are the last ones, in no order.
type refusals struct {
	mu    sync.Mutex
	all   []*refusal
	dirty map[*refusal]bool // that are not stored yet

	storing  sync.Mutex // held while they are stored
	revision engine.Revision
}

// add counts a refusal, of an IPv6 client under its /64. The name that was typed is no part of it: it may be a password.
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

// entries are the refusals as the audit log shows them.
func (r *refusals) entries() []entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []entry
	for _, e := range r.all {
		list = append(list, entry{At: e.Last, Who: "nobody", From: e.From, What: e.What, Detail: e.detail()})
	}
	return list
}

func (e *refusal) detail() string {
	if e.Tries == 1 && e.Unheard == 0 {
		return ""
	}
	text := fmt.Sprintf("%d times since %s UTC", e.Tries, whenText(e.First))
	if e.Unheard > 0 {
		text += fmt.Sprintf(", %d of them unheard: too many before", e.Unheard)
	}
	return text
}

// take returns all that is to be stored, and those that are not stored yet; nil when there is nothing new.
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

// refusalsKept is where those of this node are kept.
func (d *Dashboard) refusalsKept() string {
	if d.Node == "" {
		return RefusalsKey
	}
	return RefusalsKey + "/" + d.Node
}

// loadRefusals reads what is stored.
func (d *Dashboard) loadRefusals(ctx context.Context) error {
	doc, err := d.Documents.Get(ctx, d.refusalsKept())
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", d.refusalsKept(), err)
	}
	d.refusals.revision = doc.Revision
	if err := json.Unmarshal(doc.Value, &d.refusals.all); err != nil {
		d.Logger.Warn("the refused passwords of before cannot be read", "document", d.refusalsKept(), "error", err)
		d.refusals.all = nil
	}
	d.refusals.all = slices.DeleteFunc(d.refusals.all, func(e *refusal) bool { return e == nil })
	return nil
}

// keepRefusals logs what is new among the refusals, and stores all of them if the store takes writes.
func (d *Dashboard) keepRefusals(ctx context.Context) {
	r := &d.refusals
	r.storing.Lock()
	defer r.storing.Unlock()
	all, fresh := r.take()
	for _, e := range fresh {
		d.Logger.Info("audit", "who", "nobody", "from", e.From, "what", e.What, "tries", e.Tries)
	}
	if len(fresh) == 0 || !d.Writes() {
		return
	}
	value, err := json.Marshal(all)
	var doc engine.Document
	if err == nil && r.revision == 0 {
		doc, err = d.Documents.Create(context.WithoutCancel(ctx), d.refusalsKept(), value)
	} else if err == nil {
		doc, err = d.Documents.Update(context.WithoutCancel(ctx), d.refusalsKept(), value, r.revision)
	}
	if err != nil {
		d.Logger.Warn("refused passwords were not stored", "error", err)
		return
	}
	r.revision = doc.Revision
}
