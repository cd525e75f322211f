package dashboard

import (
	"encoding/json"
	"strings"

	"weir/internal/engine"
)

// share follows what the dashboards of other nodes store, if there are others: one password and one audit log for all. Sessions
// and figures are each node's own.
func (d *Dashboard) share() {
	if s, ok := d.Documents.(engine.Shared); ok {
		s.Watch(d.documentChanged)
	}
}

// documentChanged follows a document. It takes no lock that is held while something is stored.
func (d *Dashboard) documentChanged(c engine.Change) {
	switch {
	case c.Deleted:
	case c.Key == AccountKey:
		d.account.news.Store(&c.Document)
		d.sessions.endAll(nil)
	case strings.HasPrefix(c.Key, AuditPrefix):
		var e entry
		if json.Unmarshal(c.Value, &e) == nil {
			d.audit.add(e, c.Key)
		}
	}
}

// adopt takes over a password that was set on another node. With a.mu held.
func (a *account) adopt() {
	doc := a.news.Swap(nil)
	if doc == nil || doc.Revision <= a.revision {
		return
	}
	var record accountRecord
	if json.Unmarshal(doc.Value, &record) == nil {
		a.record, a.revision = record, doc.Revision
	}
}
