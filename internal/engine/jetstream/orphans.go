package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/engine"
)

// A deletion first deletes the document and then ends the document's log. A process that dies in
// between leaves a log that no node reads (an orphan). The first node (Nodes.First) looks for such
// logs from time to time. It ends only logs whose documents were deleted while it was running. If a
// document is missing for another reason, the documents may have been restored from a backup that
// is older than the logs. Such a log is reported and kept.
const (
	orphansFirst = time.Minute // time from joining to the first search
	orphansEvery = time.Hour
)

// orphans ends all logs whose documents were deleted while this process was running. It also purges
// the messages that are left of logs that have ended.
func (e *Engine) orphans(ctx context.Context) error {
	kept := 0
	defer func() {
		if kept > 0 {
			e.opts.Logger.Warn("some logs have no document and are kept: an older backup of the documents may have been restored", "logs", kept)
		}
	}()
	for _, s := range e.shards() {
		subjects, err := e.servers.Subjects(ctx, s.stream, s.prefix+"*")
		if err != nil {
			return fmt.Errorf("look for logs without a document: %w", err)
		}
		// A document is stored before its log gets the first message. So if a log listed above has
		// a document, this node knows the document after it has caught up.
		if err := e.docs.catchUp(ctx); err != nil {
			return err
		}
		for subject, n := range subjects {
			id, err := strconv.ParseUint(strings.TrimPrefix(subject, s.prefix), 10, 64)
			if err != nil || engine.LogID(id) == noLog || e.docs.hasLog(engine.LogID(id)) {
				continue
			}
			keep, err := e.orphan(ctx, s, engine.LogID(id), n)
			if err != nil {
				return err
			}
			if keep {
				kept++
			}
		}
	}
	return nil
}

// orphan ends a log whose document was deleted while this process was running. It returns true if
// the log must be kept. If the log has already ended, orphan purges the messages before the end
// marker, if there are any.
func (e *Engine) orphan(ctx context.Context, s *shard, id engine.LogID, n uint64) (keep bool, err error) {
	m, err := e.askLeader(ctx, s.stream, Query{LastFor: s.subject(id)})
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if r, err := decode(m.Header, m.Seq, e.opts.reads); err == nil && r[0].kind == dropped {
		if n == 1 {
			return false, nil
		}
		return false, e.purge(ctx, s.stream, s.subject(id), m.Seq)
	}
	if !e.docs.sawDeleted(id) {
		return true, nil
	}
	e.opts.Logger.Info("found a log whose document was deleted", "log", id, "messages", n)
	return false, e.endLog(ctx, id)
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
		n.e.docs.forgetDeleted(time.Now().Add(-24 * orphansEvery))
		if !n.First() {
			continue
		}
		if err := n.e.orphans(n.ctx); err != nil && n.ctx.Err() == nil {
			n.e.opts.Logger.Warn("could not remove logs without a document, will retry", "error", err)
		}
	}
}
