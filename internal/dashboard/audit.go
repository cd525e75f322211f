package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"weir"
)

// The audit log: who did what, and when. It never holds a key or a password.

// maxAudit is how many entries are kept.
const maxAudit = 1000

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
}

// loadAudit reads the log.
func (d *Dashboard) loadAudit(ctx context.Context) error {
	for after := ""; ; {
		docs, err := d.Documents.List(ctx, AuditPrefix, after, 500)
		if err != nil {
			return fmt.Errorf("list %s: %w", AuditPrefix, err)
		}
		for _, doc := range docs {
			after = doc.Key
			var e entry
			if err := json.Unmarshal(doc.Value, &e); err != nil {
				d.Logger.Warn("an entry of the audit log cannot be read", "document", doc.Key, "error", err)
				continue
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
		key = fmt.Sprintf("%s%013d-%s", AuditPrefix, int64(e.At), weir.Base62(8))
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

// Note adds what was done otherwise than through the dashboard.
func (d *Dashboard) Note(ctx context.Context, who, what, detail string) {
	d.note(ctx, entry{Who: who, What: what, Detail: detail})
}

// searchAudit returns entries that hold a text, and refusals among them, newest first.
func (d *Dashboard) searchAudit(text string) []entry {
	d.audit.mu.Lock()
	list := slices.Clone(d.audit.entries)
	d.audit.mu.Unlock()
	list = append(list, d.refusals.entries()...)
	slices.Reverse(list)
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(b.At, a.At) })
	text = strings.ToLower(text)
	return slices.DeleteFunc(list, func(e entry) bool {
		return !strings.Contains(strings.ToLower(e.Who+" "+e.From+" "+e.What+" "+e.Detail), text)
	})
}

// auditView is a page of the audit log.
type auditView struct {
	Entries []entry
	Search  string
	Paging  paging
}

const auditPage = 50

func (v *visit) auditPage() error {
	search := v.query("q")
	list := v.searchAudit(search)
	paging, from, to := pages(v.r, auditPage, len(list))
	return v.page(http.StatusOK, "audit", "Audit log", auditView{list[from:to], search, paging})
}
