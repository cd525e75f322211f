package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"weir"
	"weir/internal/access"
	"weir/internal/engine"
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

	Program bool `json:"program,omitempty"` // a program took the action, with a key or a management token
}

// audit holds the log in memory, newest entry last.
type audit struct {
	mu      sync.Mutex
	entries []entry
	keys    []string            // document key of each entry, in the same order; empty if the entry was not stored
	excess  map[string]struct{} // document keys of entries that were dropped, whose documents must still be deleted
}

// follow applies a change of the stored log.
func (a *audit) follow(c engine.Change) error {
	if c.Deleted {
		a.remove(c.Key)
		return nil
	}
	var e entry
	if err := json.Unmarshal(c.Value, &e); err != nil {
		return err
	}
	a.add(e, c.Key)
	return nil
}

// add adds an entry unless the log contains it already. It drops the oldest entries if there are
// more than maxAudit entries, or more than maxProgramAudit entries by programs.
func (a *audit) add(e entry, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key != "" && slices.Contains(a.keys[max(0, len(a.keys)-100):], key) {
		// Dashboard.note has added this entry already: the store had not answered, so note did not
		// know whether the entry was stored.
		return
	}
	a.entries, a.keys = append(a.entries, e), append(a.keys, key)
	if e.Program {
		a.dropProgram()
	}
	if n := len(a.entries) - maxAudit; n > 0 {
		for _, key := range a.keys[:n] {
			if key != "" {
				a.excess[key] = struct{}{}
			}
		}
		a.entries, a.keys = slices.Clone(a.entries[n:]), slices.Clone(a.keys[n:])
	}
}

// dropProgram drops the oldest entry by a program if there are more than maxProgramAudit of them.
// Called with a.mu held.
func (a *audit) dropProgram() {
	oldest, n := 0, 0
	for i, e := range slices.Backward(a.entries) {
		if e.Program {
			oldest = i
			n++
		}
	}
	if n <= maxProgramAudit {
		return
	}
	if key := a.keys[oldest]; key != "" {
		a.excess[key] = struct{}{}
	}
	a.entries, a.keys = slices.Delete(a.entries, oldest, oldest+1), slices.Delete(a.keys, oldest, oldest+1)
}

// remove removes an entry whose document does not exist any more.
func (a *audit) remove(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.excess, key)
	if i := slices.Index(a.keys, key); i >= 0 {
		a.entries, a.keys = slices.Delete(a.entries, i, i+1), slices.Delete(a.keys, i, i+1)
	}
}

// old returns the keys of the documents to be deleted.
func (a *audit) old() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.excess))
}

// note adds an entry with the current time, and logs it. The entry is durable when the call
// returns. If the store refuses the write, note logs the error and keeps the entry in memory only.
// A cancelled ctx does not stop the write, because the action itself has already happened.
func (d *Dashboard) note(ctx context.Context, e entry) { noteUntil(context.WithoutCancel(ctx), d, e) }

// noteUntil does the same as note, but waits for the store only until ctx is cancelled.
func noteUntil(ctx context.Context, d *Dashboard, e entry) {
	e.At = weir.TimeOf(d.Now())
	// Keys sort by time. The random part separates entries of the same millisecond.
	key := fmt.Sprintf("%s%013d-%s", AuditPrefix, int64(e.At), weir.Base62(8))
	value, err := json.Marshal(e)
	if err == nil {
		_, err = d.Documents.Create(ctx, key, value)
	}
	if err != nil {
		d.Logger.Warn("failed to store audit log entry", "what", e.What, "error", err)
		if !errors.Is(err, engine.ErrUnavailable) { // ErrUnavailable leaves open whether the entry was stored
			key = ""
		}
		d.audit.add(e, key)
	}
	d.Logger.Info("audit", "who", e.Who, "from", e.From, "what", e.What, "detail", access.Redacted(e.Detail))
	for _, key := range d.audit.old() {
		err := d.Documents.Delete(ctx, key, 0)
		if errors.Is(err, engine.ErrNotFound) { // the document was never stored, or another node has deleted it
			d.audit.remove(key)
		} else if err != nil {
			d.Logger.Debug("failed to delete old audit log entry", "error", err)
		}
	}
}

// Note records an action that was not taken through the dashboard, such as a CLI command. The
// argument who names the origin of the action. As everywhere in the audit log, the arguments must
// not contain keys or passwords.
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

// linked is a text in which an id is a link.
type linked struct {
	Before, ID, After string
	To                string // empty if there is no link; then Before is the whole text
}

// anID matches an id of a stream or a key.
var anID = regexp.MustCompile(`\b[0-9A-Za-z]{22}\b`)

// link makes the first id in a text a link to the page of the key or stream with this id, if there
// is such a page.
func (v *visit) link(text string) linked {
	for _, place := range anID.FindAllStringIndex(text, 10) {
		id, to := text[place[0]:place[1]], ""
		if _, ok := v.Access.Key(id); ok {
			to = "/dashboard/keys/" + id
		} else if _, err := v.Hub.Stream(weir.StreamID(id)); err == nil {
			to = "/dashboard/streams/" + id
		}
		if to != "" {
			return linked{text[:place[0]], id, text[place[1]:], to}
		}
	}
	return linked{Before: text}
}

// auditRow is an entry as the page shows it.
type auditRow struct {
	entry
	By, About linked // the fields Who and Detail of the entry, with a link
}

// auditView is the data of a page of the audit log.
type auditView struct {
	Entries []auditRow
	Search  string
	Paging  paging
}

const auditPage = 50

func (v *visit) auditPage() error {
	search := v.query("q")
	list := v.searchAudit(search)
	paging, from, to := pages(v.r, auditPage, len(list))
	w := auditView{Search: search, Paging: paging}
	for _, e := range list[from:to] {
		row := auditRow{e, v.link(e.Who), v.link(e.Detail)}
		if strings.HasPrefix(e.What, "project ") && row.About.To == "" {
			row.About = linked{ID: e.Detail, To: "/dashboard/projects"}
		}
		if strings.HasPrefix(e.What, "token ") && row.About.To == "" {
			row.About = linked{ID: e.Detail, To: "/dashboard/account#tokens"}
		}
		w.Entries = append(w.Entries, row)
	}
	return v.page(http.StatusOK, "audit", "Audit log", w)
}
