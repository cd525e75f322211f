package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// following returns a dashboard that has only the parts that follow the store.
func following(t *testing.T, docs engine.Documents) *Dashboard {
	t.Helper()
	d := &Dashboard{Options: Options{Documents: docs, Logger: slog.New(slog.DiscardHandler), Now: time.Now}}
	d.sessions = sessions{
		docs: docs, account: &d.account, catchUp: func() error { return docs.CatchUp(t.Context()) }, lease: func() error { return nil },
		writes: func() bool { return true }, logger: d.Logger, now: time.Now, all: map[digest]*session{},
	}
	d.revisions.of, d.audit.excess = map[string]engine.Revision{}, map[string]struct{}{}
	if err := d.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// doubtful is a store whose writes take effect but return an error that leaves their outcome open.
type doubtful struct{ engine.Documents }

func (s doubtful) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	doc, err := s.Documents.Create(ctx, key, value)
	return doc, errors.Join(err, engine.ErrUnavailable)
}

// silent is a store that answers no write: a node of a cluster after the others have stopped.
type silent struct {
	engine.Documents
	t *testing.T
}

func (s silent) Create(ctx context.Context, key string, _ []byte) (engine.Document, error) {
	if ctx.Err() == nil {
		s.t.Errorf("the context of the write of %s has not ended", key)
	}
	return engine.Document{}, engine.ErrUnavailable
}

// A node that stops waits only for a moment for a store that does not answer. The audit log is in the
// server's log as well.
func TestStopWithAStoreThatIsSilent(t *testing.T) {
	d := following(t, silent{memory.New(), t})
	d.Writes = func() bool { return true }
	d.programs.since, d.programs.unnoted = d.Now(), map[string]int{"stream created": 1}
	d.refusals.dirty = map[*refusal]bool{}
	d.refusals.add(d.Now(), netip.MustParseAddr("192.0.2.1"), signInRefused, false)
	ended, end := context.WithCancel(t.Context())
	end()
	d.keepRefusals(ended)
	d.programs.keep(ended, d, true)
	if n := len(d.searchAudit("stream created")) + len(d.searchAudit(signInRefused)); n != 2 {
		t.Errorf("%d entries are in the audit log, want 2", n)
	}
}

// A document can be written again after a write with an unknown outcome, because the store reports
// the outcome before the next write.
func TestWriteAfterAWriteInDoubt(t *testing.T) {
	docs := memory.New()
	d := following(t, doubtful{docs})
	key := d.figuresDocument(1)
	if err := d.put(t.Context(), key, []byte("one")); !errors.Is(err, engine.ErrUnavailable) {
		t.Fatal(err)
	}
	if err := d.put(t.Context(), key, []byte("two")); err != nil {
		t.Error(err)
	}
	d.note(t.Context(), entry{What: "something"})
	if n := len(d.searchAudit("something")); n != 1 {
		t.Errorf("an audit log entry whose write had an unknown outcome is in the log %d times, want once", n)
	}
}

// Nodes that share a store have one audit log. A node that adds an entry deletes the entries beyond
// the limit, and they disappear on all nodes.
func TestNodesShareTheAuditLog(t *testing.T) {
	docs := memory.New()
	nodes := []*Dashboard{following(t, docs), following(t, docs)}
	for i := range maxAudit + 7 {
		nodes[i/500%2].note(t.Context(), entry{What: fmt.Sprint("action ", i)})
	}
	stored, err := docs.List(t.Context(), AuditPrefix, "", 2*maxAudit)
	if err != nil || len(stored) != maxAudit {
		t.Errorf("%d entries are stored, want %d (%v)", len(stored), maxAudit, err)
	}
	for i, d := range append(nodes, following(t, docs)) {
		if n := len(d.searchAudit("")); n != maxAudit || len(d.audit.old()) != 0 {
			t.Errorf("node %d has %d entries and %d to delete, want %d and none", i, n, len(d.audit.old()), maxAudit)
		}
	}
}

// A password that is set on one node is valid on all nodes, and ends the sessions on all nodes.
func TestNodesShareThePassword(t *testing.T) {
	docs := memory.New()
	here, there := following(t, docs), following(t, docs)
	there.sessions.begin(0, "192.0.2.1", "browser")
	rev, err := here.setPassword(t.Context(), "correct horse", 0)
	if err != nil {
		t.Fatal(err)
	}
	if hash, at := there.account.hash(); hash == "" || at != rev {
		t.Errorf("the other node has revision %d, want %d", at, rev)
	}
	if n := len(there.sessions.list(rev)); n != 0 {
		t.Errorf("%d sessions outlived the change of the password", n)
	}
	if err := docs.Delete(t.Context(), AccountKey, 0); err != nil {
		t.Fatal(err)
	}
	if here.HasPassword() || there.HasPassword() {
		t.Error("the account was deleted, but a password is still set")
	}
}

// The log line of an audited action says what the action was about, and never shows a whole key.
func TestAuditLogLine(t *testing.T) {
	d := following(t, memory.New())
	var log strings.Builder
	d.Logger = slog.New(slog.NewTextHandler(&log, nil))
	key := "svc_live_" + strings.Repeat("0a1b", 8)
	d.Note(t.Context(), "command line", "key created", key+" for billing")
	if text := log.String(); !strings.Contains(text, `what="key created"`) || !strings.Contains(text, "for billing") || strings.Contains(text, key) {
		t.Errorf("the log line lacks the action or the detail, or shows the key: %s", text)
	}
}
