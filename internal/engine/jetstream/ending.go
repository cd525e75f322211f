package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/documents"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// dropOpen drops a log of a deleted document if this node has it open.
func (e *Engine) dropOpen(id engine.LogID) {
	if l := e.opened(id); l != nil {
		l.drop()
	}
}

// endedElsewhere drops a log that another node has ended. The watchers receive the deletion of its
// document first, unless the servers do not answer soon.
func (l *log) endedElsewhere() {
	soon, cancel := context.WithTimeout(l.e.client.Life, l.e.client.Apart(l.e.opts.hearing))
	defer cancel()
	l.e.docs.Sync(soon)
	l.drop()
}

// dropLog ends the log of a deleted document. If that fails, it tries again in the background.
func (e *Engine) dropLog(id engine.LogID) error {
	failed := e.endLog(e.client.Life, id)
	if failed == nil {
		return nil
	}
	e.background(func() {
		for err := failed; err != nil; err = e.endLog(e.client.Life, id) {
			e.opts.Logger.Warn("could not end the log of a deleted document, will retry", "log", id, "error", err)
			select {
			case <-e.ending:
				return
			case <-time.After(e.client.Apart(time.Second)):
			}
		}
	})
	return failed
}

// endLog ends the log of a deleted document for all nodes: it stores an end marker as the last
// message. Every write is conditional on the last message that its node knows. A write that was
// decided before the marker expects a different last message, so the servers refuse it.
func (e *Engine) endLog(ctx context.Context, id engine.LogID) error {
	if l := e.opened(id); l != nil {
		if gone := l.drop(); gone != nil {
			late := time.NewTimer(e.client.Limit())
			defer late.Stop()
			select {
			case <-gone:
			case <-late.C:
				return fmt.Errorf("end log %d: %w: a write to it got no answer", id, engine.ErrUnavailable)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	s := e.shard(id)
	last := record.Record{Parts: 1, Header: engine.Header{Kind: record.Dropped}}
	m := &nats.Msg{Subject: s.subject(id), Header: record.Header(last)}
	m.Header.Set(jetstream.MsgTTLHeader, documents.MarkerLife)
	at, err := wire.Ask(ctx, e.client, func(ctx context.Context) (uint64, error) { return e.client.Publish(ctx, []*nats.Msg{m}) })
	if err != nil {
		return fmt.Errorf("end log %d: %w", id, err)
	}
	return e.client.Clear(ctx, s.Stream, s.subject(id), at)
}

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
		subjects, err := e.client.Subjects(ctx, s.Stream, s.prefix+"*")
		if err != nil {
			return fmt.Errorf("look for logs without a document: %w", err)
		}
		// A document is stored before its log gets the first message. So if a log listed above has
		// a document, this node knows the document after it has caught up.
		if err := e.docs.Sync(ctx); err != nil {
			return err
		}
		for subject, n := range subjects {
			id, err := strconv.ParseUint(strings.TrimPrefix(subject, s.prefix), 10, 64)
			if err != nil || engine.LogID(id) == noLog || e.docs.HasLog(engine.LogID(id)) {
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
	m, err := e.client.Leader(ctx, s.Stream, wire.Query{LastFor: s.subject(id)})
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if r, err := record.Decode(m.Header, m.Seq, e.opts.reads); err == nil && r[0].Kind == record.Dropped {
		if n == 1 {
			return false, nil
		}
		return false, e.client.Clear(ctx, s.Stream, s.subject(id), m.Seq)
	}
	if !e.docs.SawDeleted(id) {
		return true, nil
	}
	e.opts.Logger.Info("found a log whose document was deleted", "log", id, "messages", n)
	return false, e.endLog(ctx, id)
}

// endOrphans runs until the engine is closed. While this node is the first one, it looks for logs
// without a document at intervals.
func (e *Engine) endOrphans() {
	next := time.NewTimer(orphansFirst)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(orphansEvery)
		case <-e.ending:
			return
		}
		e.docs.ForgetDeleted(time.Now().Add(-24 * orphansEvery))
		if !e.Nodes.First() {
			continue
		}
		if err := e.orphans(e.client.Life); err != nil && !errors.Is(err, engine.ErrClosed) {
			e.opts.Logger.Warn("could not remove logs without a document, will retry", "error", err)
		}
	}
}
