package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"weir"
)

// The audit log: who did what, and when. It never holds a key or a password.

const (
	auditPrefix = "audit/"
	maxAudit    = 1000 // entries that are kept
)

// entry is one line of the audit log.
type entry struct {
	At     weir.Time `json:"at"`
	Who    string    `json:"who"`            // the account, or how else it was done
	From   string    `json:"from,omitempty"` // address
	What   string    `json:"what"`
	Detail string    `json:"detail,omitempty"`
}

// audit is the log, newest last.
type audit struct {
	mu      sync.Mutex
	entries []entry
	keys    []string // of their documents, in the same order; empty: it could not be stored

	failed time.Time // when a failure to sign in was last noted
	unsaid int       // failures since
}

// loadAudit reads the log.
func (d *Dashboard) loadAudit(ctx context.Context) error {
	for after := ""; ; {
		docs, err := d.Documents.List(ctx, auditPrefix, after, 500)
		if err != nil {
			return fmt.Errorf("list %s: %w", auditPrefix, err)
		}
		for _, doc := range docs {
			after = doc.Key
			var e entry
			if err := json.Unmarshal(doc.Value, &e); err != nil {
				return fmt.Errorf("read %s: %w", doc.Key, err)
			}
			d.audit.add(e, doc.Key)
		}
		if len(docs) < 500 {
			return nil
		}
	}
}

// add takes an entry into memory, unless it is there, and returns the documents of those that were given up for it.
func (a *audit) add(e entry, key string) (old []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key != "" && slices.Contains(a.keys[max(0, len(a.keys)-100):], key) {
		return nil // of a store that is shared one hears of one's own as well
	}
	a.entries, a.keys = append(a.entries, e), append(a.keys, key)
	if n := len(a.entries) - maxAudit; n > 0 {
		old = slices.Clone(a.keys[:n])
		a.entries, a.keys = slices.Clone(a.entries[n:]), slices.Clone(a.keys[n:])
	}
	return old
}

// note adds an entry. It is stored when the call returns; where the store takes nothing it is kept in memory, and logged.
func (d *Dashboard) note(ctx context.Context, e entry) {
	e.At = weir.TimeOf(d.Now())
	value, err := json.Marshal(e)
	key := ""
	if err == nil {
		// Keys sort by time. What is random in them keeps two of one moment apart.
		key = fmt.Sprintf("%s%013d-%s", auditPrefix, int64(e.At), weir.Base62(8))
		_, err = d.Documents.Create(context.WithoutCancel(ctx), key, value)
	}
	if err != nil {
		key = ""
		d.Logger.Warn("an entry of the audit log was not stored", "what", e.What, "error", err)
	}
	d.Logger.Info("audit", "who", e.Who, "from", e.From, "what", e.What)
	for _, key := range d.audit.add(e, key) {
		if key != "" {
			if err := d.Documents.Delete(context.WithoutCancel(ctx), key, 0); err != nil {
				d.Logger.Debug("an old entry of the audit log was not deleted", "error", err)
			}
		}
	}
}

// noteEvery bounds how often failures to sign in are noted: otherwise whoever guesses could wash everything else away.
const noteEvery = time.Minute

// noteFailure notes that somebody failed to sign in. The name that was typed is not repeated: it may be a password.
func (d *Dashboard) noteFailure(ctx context.Context, from string) {
	a := &d.audit
	now := d.Now()
	a.mu.Lock()
	if now.Sub(a.failed) < noteEvery {
		a.unsaid++
		a.mu.Unlock()
		return
	}
	detail := ""
	if a.unsaid > 0 {
		detail = fmt.Sprintf("and %d more before it that were not noted", a.unsaid)
	}
	a.failed, a.unsaid = now, 0
	a.mu.Unlock()
	d.note(ctx, entry{Who: "nobody", From: from, What: "sign-in refused", Detail: detail})
}

// Note adds what was done otherwise than through the dashboard.
func (d *Dashboard) Note(ctx context.Context, who, what, detail string) {
	d.note(ctx, entry{Who: who, What: what, Detail: detail})
}

// search returns entries, newest first, that hold a text, from the given one on, and how many there are.
func (a *audit) search(text string, from, most int) ([]entry, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text = strings.ToLower(text)
	var list []entry
	found := 0
	for _, e := range slices.Backward(a.entries) {
		if text != "" && !strings.Contains(strings.ToLower(e.Who+" "+e.From+" "+e.What+" "+e.Detail), text) {
			continue
		}
		if found >= from && len(list) < most {
			list = append(list, e)
		}
		found++
	}
	return list, found
}
