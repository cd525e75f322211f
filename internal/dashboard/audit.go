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
	"weir/internal/access"
)

// The audit log records who did what and when. It never contains keys or passwords.

// maxAudit is the number of entries that are kept.
const maxAudit = 1000

// entry is one line of the audit log.
type entry struct {
	At     weir.Time `json:"at"`
	Who    string    `json:"who"`            // the account, or another origin such as "command line"
	From   string    `json:"from,omitempty"` // client address
	What   string    `json:"what"`           // the action
	Detail string    `json:"detail,omitempty"`
}

// audit holds the log in memory, newest entry last.
type audit struct {
	mu      sync.Mutex
	entries []entry
	keys    []string // their document keys, in the same order; empty for an entry that was not stored
}

// loadAudit reads the stored log.
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
				d.Logger.Warn("skipped unreadable audit log entry", "document", doc.Key, "error", err)
				continue
			}
			d.audit.add(e, doc.Key)
		}
		if len(docs) < 500 {
			return nil
		}
	}
}

// add adds an entry to memory unless it is there already. It returns the document keys of the
// oldest entries that it dropped to stay within maxAudit.
func (a *audit) add(e entry, key string) (old []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key != "" && slices.Contains(a.keys[max(0, len(a.keys)-100):], key) {
		return nil // a shared store also notifies this node of its own entries
	}
	a.entries, a.keys = append(a.entries, e), append(a.keys, key)
	if n := len(a.entries) - maxAudit; n > 0 {
		old = slices.Clone(a.keys[:n])
		a.entries, a.keys = slices.Clone(a.entries[n:]), slices.Clone(a.keys[n:])
	}
	return old
}

// note adds an entry with the current time, and logs it. The entry is durable when the call
// returns, unless the store refuses the write: then it stays in memory only, which is logged. A
// canceled ctx does not stop the write, since the action itself has already happened.
func (d *Dashboard) note(ctx context.Context, e entry) {
	e.At = weir.TimeOf(d.Now())
	value, err := json.Marshal(e)
	key := ""
	if err == nil {
		// Keys sort by time. The random part separates entries of the same millisecond.
		key = fmt.Sprintf("%s%013d-%s", AuditPrefix, int64(e.At), weir.Base62(8))
		_, err = d.Documents.Create(context.WithoutCancel(ctx), key, value)
	}
	if err != nil {
		key = ""
		d.Logger.Warn("failed to store audit log entry", "what", e.What, "error", err)
	}
	d.Logger.Info("audit", "who", e.Who, "from", e.From, "what", e.What, "detail", access.Redacted(e.Detail))
	for _, key := range d.audit.add(e, key) {
		if key != "" {
			if err := d.Documents.Delete(context.WithoutCancel(ctx), key, 0); err != nil {
				d.Logger.Debug("failed to delete old audit log entry", "error", err)
			}
		}
	}
}

// Note records an action that was not taken through the dashboard, such as a CLI command. Who names
// its origin. Like all of the audit log, the arguments must not contain keys or passwords.
func (d *Dashboard) Note(ctx context.Context, who, what, detail string) {
	d.note(ctx, entry{Who: who, What: what, Detail: detail})
}

// searchAudit returns all entries that contain the text, ignoring case, newest first. Refused
// sign-ins are included.
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

// auditView is the data of a page of the audit log.
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
