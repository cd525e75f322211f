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
)

// shard is one JetStream stream: a share of the logs, each under a subject of its own.
type shard struct {
	line
	prefix  string        // of subjects
	batches chan struct{} // atomic batches on their way: JetStream takes 50 at a time from all processes together
	users   int           // logs for which it is followed; guarded by line.mu
}

const batchesAtOnce = 12

// message is a record of a log, without its payload, and where it is.
type message struct {
	record
	js     uint64 // the sequence in the JetStream stream of the message that holds it, or the first part of it
	offset uint32 // of its payload in that
}

func (s *shard) subject(id engine.LogID) string { return s.prefix + strconv.FormatUint(uint64(id), 10) }

// begin makes the shard ready to be followed: by one consumer for all of its logs, without payloads.
func (s *shard) begin(ctx context.Context, e *Engine, i int) error {
	s.stream, s.prefix = fmt.Sprintf("%s-log-%d", e.opts.Name, i), fmt.Sprintf("%s.log.%d.", e.opts.Name, i)
	s.batches = make(chan struct{}, batchesAtOnce)
	s.fence, s.headers, s.line.take = s.subject(noLog), true, s.take
	for {
		info, err := e.js.Stream(ctx, s.stream)
		if err == nil {
			s.line.begin(e, info.CachedInfo().State.LastSeq)
			return nil
		}
		// It was made just now, by us or another node: a server that does not know it yet is asked again.
		if !errors.Is(err, jetstream.ErrStreamNotFound) || pause(ctx, retry/4) != nil {
			return fmt.Errorf("follow %s: %w", s.stream, err)
		}
	}
}

// noLog is no log's name.
const noLog = engine.LogID(0)

// take hands a message to its log, if that is followed.
func (s *shard) take(m *nats.Msg, seq uint64) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.prefix), 10, 64)
	if err != nil {
		return
	}
	l := s.e.opened(engine.LogID(id))
	if l == nil || !l.hears() {
		return
	}
	records, err := decode(m.Header, seq)
	if err != nil {
		s.e.opts.Logger.Error("a message cannot be read", "subject", m.Subject, "error", err)
		return
	}
	l.hear(records)
}

// last is the place of the newest message of a subject of all that was acknowledged before the call; 0 when there is none. A leader
// cannot be asked, since it may lead no more: the answer is that of a replica which has come as far as a place that most of
// them agreed on.
func (s *shard) last(ctx context.Context, subject string) (uint64, error) {
	for deadline := time.Now().Add(s.e.opts.Patience); ; {
		mark, err := s.mark(ctx)
		if err != nil {
			return 0, err
		}
		for again := time.Now().Add(readWithin); time.Now().Before(again); {
			at, upTo, err := s.e.newest(ctx, s.stream, subject, s.fence)
			if err == nil && upTo >= mark {
				return at, nil
			}
			if err := pause(ctx, retry/16); err != nil {
				return 0, err
			}
		}
		if s.e.Status().State == engine.Full {
			// There is no space for a fence, so nobody says how far it is; its leader's word is what there is.
			m, err := s.e.askLeader(ctx, s.stream, query{LastFor: subject})
			if errors.Is(err, engine.ErrNotFound) {
				return 0, nil
			}
			return m.seq, err
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%w: no replica of %s that is up to date answered within %v", engine.ErrUnavailable, s.stream, s.e.opts.Patience)
		}
	}
}

var errHole = errors.New("messages are missing in the middle")

// foldTries is how often a log is read anew that has a hole, when others trim it meanwhile.
const maxRereads = 20

// fold returns the messages of a subject from a place on, without payloads, up to what was acknowledged when it was called.
// A hole in what is left is damage: nobody takes messages out of the middle.
func (s *shard) readHeaders(ctx context.Context, subject string, from uint64) ([]message, error) {
	holes := 0
	for deadline := time.Now().Add(s.e.opts.Patience); ; {
		all, err := s.readHeadersOnce(ctx, subject, from)
		if errors.Is(err, errHole) {
			holes++
		}
		switch {
		case err == nil || errors.Is(err, engine.ErrUnavailable):
			return all, err
		case s.e.ctx.Err() != nil:
			return nil, engine.ErrClosed
		case holes == maxRereads || errors.Is(err, errRecord):
			return nil, fmt.Errorf("%w: %w", engine.ErrDamaged, err)
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w: read %s: %w", engine.ErrUnavailable, subject, err)
		}
		if err := pause(ctx, retry/8); err != nil {
			return nil, err
		}
	}
}

// since returns the messages of a subject behind one of its own, up to what was acknowledged when it was called. They are read with
// their payloads, so it is for a few; and it needs nobody but the shard's own servers, where fold needs one who leads all.
func (s *shard) since(ctx context.Context, subject string, known uint64) ([]message, error) {
	last, err := s.last(ctx, subject)
	if err != nil {
		return nil, err
	}
	if last < known {
		return nil, fmt.Errorf("%w: the newest message of %s is gone", engine.ErrDamaged, subject)
	}
	var all []message
	from := known + 1
	for deadline := time.Now().Add(s.e.opts.Patience); from <= last; {
		got, err := s.e.read(ctx, s.stream, query{Seq: from, NextFor: subject, Batch: sinceAtOnce, MaxBytes: sinceBytes})
		for _, m := range got {
			records, err := decode(m.header, m.seq)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", engine.ErrDamaged, err)
			}
			all = append(all, records...)
			from = m.seq + 1
		}
		switch {
		case len(got) > 0:
		case s.e.ctx.Err() != nil:
			return nil, engine.ErrClosed
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w: read %s from %d on: %v", engine.ErrUnavailable, subject, from, err)
		default:
			if err := pause(ctx, retry/8); err != nil { // a replica lags behind
				return nil, err
			}
		}
	}
	return all, nil
}

// sinceAtOnce is how many messages are asked for at once, and sinceBytes how much they may have: a message is there in any case.
const (
	sinceAtOnce = 64
	sinceBytes  = 4 << 20
)

func (s *shard) readHeadersOnce(ctx context.Context, subject string, from uint64) ([]message, error) {
	last, err := s.last(ctx, subject)
	if err != nil || last < from {
		return nil, err
	}
	try, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	c, err := s.e.js.CreateConsumer(try, s.stream, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1), AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: s.e.opts.Patience,
	})
	if err != nil {
		return nil, err
	}
	defer s.e.nc.Publish("$JS.API.CONSUMER.DELETE."+s.stream+"."+c.CachedInfo().Name, nil)
	var all []message
	for pending := c.CachedInfo().NumPending; pending > 0; {
		got, err := c.Fetch(int(min(pending, 2000)), jetstream.FetchMaxWait(attempt))
		if err != nil {
			return nil, err
		}
		n := 0
		for m := range got.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return nil, err
			}
			records, err := decode(m.Headers(), meta.Sequence.Stream)
			if err != nil {
				return nil, err
			}
			if k := len(all); k > 0 && records[0].kind != dropped && records[0].position != all[k-1].position+1 {
				return nil, errHole
			}
			pending = meta.NumPending
			all = append(all, records...)
			n++
		}
		if err := got.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return nil, err
		}
		if n == 0 {
			return nil, errors.New("what is pending does not come")
		}
	}
	if k := len(all); k == 0 || all[k-1].js < last {
		return nil, errors.New("a replica lags behind")
	}
	return all, nil
}
