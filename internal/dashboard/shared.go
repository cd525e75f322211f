package dashboard

import (
	"encoding/json"
	"strings"

	"weir/internal/engine"
)

// share watches what the dashboards of other nodes store, if several nodes share the store. They
// have one password and one audit log in common. Each node has its own sessions and figures.
func (d *Dashboard) share() {
	if s, ok := d.Documents.(engine.Shared); ok {
		s.Watch(d.documentChanged)
	}
}

// documentChanged applies a change that this or another node stored. It must not take a lock that
// is held across a write, such as account.mu: the write may wait for this notification.
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

// adopt applies a password that was set on another node. The caller holds a.mu.
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
