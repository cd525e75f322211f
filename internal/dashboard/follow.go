package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"weir/internal/engine"
)

// Four things follow the store: the account, the sessions, the audit log, and the revisions of the
// documents that this node writes. Only documentChanged changes them in memory, when the store
// reports a change. So the memory agrees with the store even if the client that made the change
// disconnected before the response (D33). There is one exception: a session begins and ends in
// memory at once, because an operator must be able to sign in and out while the store refuses
// writes. Nodes that share a store have one password, one set of sessions and one audit log in
// common. Each node has its own figures.

// follow reads the documents of the store, and receives every later change of them.
func (d *Dashboard) follow(ctx context.Context) error {
	of := engine.Prefixes{AccountKey, SessionPrefix, AuditPrefix, d.refusalsKept(), d.figuresOf()}
	if err := d.Documents.Watch(ctx, of, d.documentChanged); err != nil {
		return fmt.Errorf("read the account and the audit log: %w", err)
	}
	d.account.mu.Lock()
	defer d.account.mu.Unlock()
	return d.account.unreadable
}

// documentChanged applies a change that this or another node stored. It must not take a lock that
// is held during a write, such as account.changing: the write waits for this call, so both would
// wait forever.
func (d *Dashboard) documentChanged(c engine.Change) {
	switch {
	case c.Key == AccountKey:
		d.account.follow(c) // a change of the account ends all sessions, because they are valid only for the revision at which they began
	case strings.HasPrefix(c.Key, SessionPrefix):
		if err := d.sessions.follow(c); err != nil {
			d.Logger.Warn("ended unreadable session", "error", err)
		}
	case strings.HasPrefix(c.Key, AuditPrefix):
		if err := d.audit.follow(c); err != nil {
			d.Logger.Warn("skipped unreadable audit log entry", "document", c.Key, "error", err)
		}
	case c.Key == d.refusalsKept(), strings.HasPrefix(c.Key, d.figuresOf()):
		d.revisions.follow(c)
	}
}

// follow takes over the stored account. If the account cannot be read when the dashboard opens,
// opening fails. If it cannot be read after a later change, the account before the change stays in
// use.
func (a *account) follow(c engine.Change) {
	var record accountRecord
	var err error
	if !c.Deleted {
		err = json.Unmarshal(c.Value, &record)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.unreadable = fmt.Errorf("read %s: %w", c.Key, err)
		return
	}
	if a.record, a.revision = record, c.Revision; c.Deleted {
		a.revision = 0
	}
}

// revisions holds the revision of each document that this node writes, by document key.
type revisions struct {
	mu sync.Mutex
	of map[string]engine.Revision
}

func (r *revisions) follow(c engine.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Deleted {
		delete(r.of, c.Key)
	} else {
		r.of[c.Key] = c.Revision
	}
}

// keys returns the keys with a prefix.
func (r *revisions) keys(prefix string) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.of {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// put stores a document that no other node writes. If the outcome of an earlier write was unknown,
// the store has reported that outcome by now, so put uses the right revision.
func (d *Dashboard) put(ctx context.Context, key string, value []byte) (err error) {
	d.revisions.mu.Lock()
	rev := d.revisions.of[key]
	d.revisions.mu.Unlock()
	if rev == 0 {
		_, err = d.Documents.Create(ctx, key, value)
	} else {
		_, err = d.Documents.Update(ctx, key, value, rev)
	}
	return err
}
