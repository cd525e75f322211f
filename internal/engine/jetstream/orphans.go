package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// A deletion first deletes the document and then ends the document's log. A process that dies in
// between leaves a log that no node reads (an orphan). The first node (Nodes.First) looks for such
// logs from time to time.
const (
	orphansFirst = time.Minute // time from joining to the first search
	orphansEvery = time.Hour
)

// orphans ends all logs without a document, and purges the messages that are left of logs that have
// ended.
func (e *Engine) orphans(ctx context.Context) error {
	for _, s := range e.shards {
		info, err := e.js.Stream(ctx, s.stream)
		if err != nil {
			return fmt.Errorf("look for logs without a document: %w", err)
		}
		got, err := info.Info(ctx, jetstream.WithSubjectFilter(s.prefix+"*"))
		if err != nil {
			return fmt.Errorf("look for logs without a document: %w", err)
		}
		// A document is stored before its log gets the first message. So if a log listed above has
		// a document, this node knows the document after it has caught up.
		if err := e.docs.catchUp(ctx); err != nil {
			return err
		}
		for subject, n := range got.State.Subjects {
			id, err := strconv.ParseUint(strings.TrimPrefix(subject, s.prefix), 10, 64)
			if err != nil || engine.LogID(id) == noLog || e.docs.hasLog(engine.LogID(id)) {
				continue
			}
			if err := e.orphan(ctx, s, engine.LogID(id), n); err != nil {
				return err
			}
		}
	}
	return nil
}

// orphan ends a log. If the log has already ended, orphan purges the messages before the end
// marker, if there are any.
func (e *Engine) orphan(ctx context.Context, s *shard, id engine.LogID, n uint64) error {
	m, err := e.askLeader(ctx, s.stream, query{LastFor: s.subject(id)})
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if r, err := decode(m.header, m.seq); err == nil && r[0].kind == dropped {
		if n == 1 {
			return nil
		}
		return e.purge(ctx, s.stream, s.subject(id), m.seq)
	}
	e.opts.Logger.Info("found a log without a document", "log", id, "messages", n)
	return e.endLog(ctx, id)
}

// endOrphans runs until this node leaves. While this node is the first one, it looks for logs
// without a document at intervals.
func (n *Nodes) endOrphans() {
	next := time.NewTimer(orphansFirst)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(orphansEvery)
		case <-n.quit:
			return
		}
		if !n.First() {
			continue
		}
		if err := n.e.orphans(n.ctx); err != nil && n.ctx.Err() == nil {
			n.e.opts.Logger.Warn("could not remove logs without a document, will retry", "error", err)
		}
	}
}
