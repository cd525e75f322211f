package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

var errHole = errors.New("records are missing in the middle of the log")

// maxRereads is how often Records reads a log before it believes that a hole is damage. Other
// nodes may have trimmed the log while it was read, which also looks like a hole.
const maxRereads = 20

// Records returns the records of a subject from a sequence on, without payloads. The last record
// before that sequence has the position after. The result includes every record that was acknowledged
// before the call. If records are missing in the middle at each of maxRereads attempts, the log is
// damaged, because Weir purges only the oldest messages of a log.
func (l *Line) Records(ctx context.Context, subject string, from, after uint64) ([]record.Record, error) {
	holes := 0
	for deadline := time.Now().Add(l.client.Patience); ; {
		all, err := l.readOnce(ctx, subject, from, after)
		if errors.Is(err, errHole) {
			holes++
		}
		switch {
		case err == nil || errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrTooNew):
			return all, err
		case l.client.Life.Err() != nil:
			return nil, engine.ErrClosed
		case holes == maxRereads || errors.Is(err, record.ErrInvalid):
			return nil, fmt.Errorf("%w: %w", engine.ErrDamaged, err)
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w: read %s: %w", engine.ErrUnavailable, subject, err)
		}
		if err := l.client.Pause(ctx, wire.Retry/8); err != nil {
			return nil, err
		}
	}
}

// RecordsAfter returns the records of a subject after a known message. The result includes every
// record that was acknowledged before the call. RecordsAfter reads the payloads too, so it is
// suitable only for few records. But it needs only the servers of the shard, while Records
// creates a consumer and therefore also needs the leader of JetStream as a whole (the meta leader).
func (l *Line) RecordsAfter(ctx context.Context, subject string, known uint64) ([]record.Record, error) {
	newest, err := l.Last(ctx, subject)
	if err != nil {
		return nil, err
	}
	last := newest.Seq
	if last < known {
		return nil, fmt.Errorf("%w: the newest known message of %s was removed", engine.ErrDamaged, subject)
	}
	var all []record.Record
	from := known + 1
	for deadline := time.Now().Add(l.client.Patience); from <= last; {
		got, _, err := l.client.Read(ctx, l.Stream, wire.Query{Seq: from, NextFor: subject, Batch: afterAtOnce, MaxBytes: afterBytes})
		for _, m := range got {
			records, err := record.Decode(m.Header, m.Seq, l.Reads)
			if errors.Is(err, engine.ErrTooNew) {
				return nil, err
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %w", engine.ErrDamaged, err)
			}
			all = append(all, records...)
			from = m.Seq + 1
		}
		switch {
		case len(got) > 0:
		case l.client.Life.Err() != nil:
			return nil, engine.ErrClosed
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%w: read %s from %d on: %v", engine.ErrUnavailable, subject, from, err)
		default:
			if err := l.client.Pause(ctx, wire.Retry/8); err != nil { // the replica lags behind
				return nil, err
			}
		}
	}
	return all, nil
}

// afterAtOnce is how many messages RecordsAfter requests at once. afterBytes is the maximum size of
// these messages in bytes; a server returns at least one message even if it is larger.
const (
	afterAtOnce = 64
	afterBytes  = 4 << 20
)

// readOnce is one attempt of Records.
func (l *Line) readOnce(ctx context.Context, subject string, from, after uint64) ([]record.Record, error) {
	newest, err := l.Last(ctx, subject)
	if err != nil || newest.Seq < from {
		return nil, err
	}
	tip, err := record.Decode(newest.Header, newest.Seq, l.Reads)
	if err != nil {
		return nil, err
	}
	if all, err := l.readShort(ctx, subject, from, after, newest, tip); err != nil || all != nil {
		return all, err
	}
	all := run{reads: l.Reads, last: tip[len(tip)-1].Position}
	err = l.client.Headers(ctx, l.Stream, subject, from, all.add)
	if err == nil && all.end() < newest.Seq {
		err = errors.New("replica lags behind")
	}
	if err != nil {
		return nil, err
	}
	return all.records, nil
}

// run is the records of consecutive messages of a log.
type run struct {
	records []record.Record
	reads   byte
	last    uint64 // position of the last record of the log, as far as it is known
}

// add decodes a message and adds its records. It returns errHole if they do not come directly after
// the records before.
func (r *run) add(m wire.Stored) error {
	n := len(r.records)
	all, err := record.Append(r.records, m.Header, m.Seq, r.reads)
	if err != nil {
		return err
	}
	if first := all[n]; n > 0 && first.Kind != record.Dropped && first.Position != all[n-1].Position+1 {
		return errHole
	}
	if n == 0 && all[0].Position < r.last {
		all = slices.Grow(all, int(min(r.last-all[0].Position, growMost))) // one allocation for all other records
	}
	r.records = all
	return nil
}

// growMost is the largest number of records for which a run allocates memory in advance. Records may
// be missing, so the last position alone does not say how many there are.
const growMost = 1 << 17

// end returns the JetStream sequence of the last message; 0 if there is none.
func (r *run) end() uint64 {
	if len(r.records) == 0 {
		return 0
	}
	return r.records[len(r.records)-1].At
}

// A log of at most shortRecords records and shortBytes bytes of payload is read with its payloads,
// because a consumer, which could leave the payloads out, costs the servers more: all servers of the
// cluster must agree to create it. At most chainRecords records are read one by one. The server that
// is asked for the messages of one subject must look at all messages in between.
const (
	chainRecords = 16
	shortRecords = 64
	shortBytes   = 256 << 10
)

// readShort reads a short log without a consumer. It returns nil if the log is longer, or the replica
// that was asked lags behind. The newest message of the subject and its records are known.
func (l *Line) readShort(ctx context.Context, subject string, from, after uint64, newest wire.Stored, tip []record.Record) ([]record.Record, error) {
	if tip[0].Position <= after+1 { // also if the log has ended: then the position is 0
		return tip, nil
	}
	if tip[0].Position > after+shortRecords {
		return nil, nil
	}
	if tip[0].Position <= after+chainRecords {
		if chain := l.readChain(ctx, after, newest, tip); chain != nil {
			return chain, nil
		}
	}
	got, _, err := l.client.Read(ctx, l.Stream, wire.Query{Seq: from, NextFor: subject, Batch: shortRecords, MaxBytes: shortBytes})
	if err != nil {
		return nil, nil
	}
	all := run{reads: l.Reads, last: tip[len(tip)-1].Position}
	for _, m := range got {
		if err := all.add(m); err != nil {
			return nil, err
		}
	}
	if all.end() < newest.Seq {
		return nil, nil
	}
	return all.records, nil
}

// readChain reads the messages of a log one by one, from the newest back to the one after the
// position after. The condition of each write, which is stored with it, names the message before. It
// returns nil if the messages are large, or cannot be read, or may have been purged because the log
// was trimmed.
func (l *Line) readChain(ctx context.Context, after uint64, m wire.Stored, all []record.Record) []record.Record {
	for bytes := 0; all[0].Position > after+1; bytes += len(m.Data) {
		if bytes > shortBytes || slices.ContainsFunc(all, func(r record.Record) bool { return r.Kind == record.Trim }) {
			return nil
		}
		got, _, err := l.client.Read(ctx, l.Stream, wire.Query{Seq: wire.Before(m)})
		if err != nil || len(got) == 0 || got[0].Subject != m.Subject {
			return nil
		}
		m = got[0]
		before, err := record.Decode(m.Header, m.Seq, l.Reads)
		if err != nil || before[len(before)-1].Position+1 != all[0].Position {
			return nil
		}
		all = append(before, all...)
	}
	return all
}
