package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

const (
	longRun  = 1 << 20  // size in bytes of a run (the part of a log that Scan reads at once) if the caller of Scan passes 0
	runMost  = 256      // maximum number of entries in a run
	anySpace = 32 << 20 // byte limit that is high enough for a read to return all requested messages
)

// reader reads the entries of a log. Calls that need the same messages at the same time share one
// read. The lock of the log guards the fields.
type reader struct {
	l       *log
	fetched *fetch              // the run (part of the log) that Scan read last
	reads   map[uint64]*reading // messages that are being read, by JetStream sequence
}

// Read returns an entry.
func (r *reader) Read(ctx context.Context, seq weir.Seq) (engine.Entry, error) {
	r.l.catchUpToRead(ctx)
	at, err := r.locate(ctx, seq)
	if err != nil {
		return engine.Entry{}, err
	}
	return r.entryAt(ctx, at)
}

// Header returns an entry without its payload. JetStream cannot read only the header of a message,
// so Header reads the whole message. If an entry is split over several messages, it reads the first
// one.
func (r *reader) Header(ctx context.Context, seq weir.Seq) (engine.Header, error) {
	at, err := r.locate(ctx, seq)
	if err != nil {
		return engine.Header{}, err
	}
	p, err := r.parcelOf(ctx, at)
	if err != nil {
		return engine.Header{}, err
	}
	rec, err := p.record(at)
	return rec.Header, err
}

// locate returns the index entry of a sequence, which says which message holds the entry.
func (r *reader) locate(ctx context.Context, seq weir.Seq) (entry, error) {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if err := r.l.usable(ctx); err != nil {
		return entry{}, err
	}
	i, found := r.l.index.find(seq)
	if !found {
		return entry{}, engine.ErrNotFound
	}
	return r.l.index.entries[i], nil
}

// reading is a message that is being read for the headers in it.
type reading struct {
	done chan struct{} // closed when p and err are set
	p    parcel
	err  error
}

// parcelOf reads the message in which an entry begins. Concurrent calls for the same message share
// one read. Such calls occur when a publisher repeats many batches because it lost the answers:
// Weir then needs the headers of many entries in the same message.
func (r *reader) parcelOf(ctx context.Context, at entry) (parcel, error) {
	r.l.mu.Lock()
	if other := r.reads[at.js]; other != nil {
		r.l.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return parcel{}, ctx.Err()
		}
		if other.err == nil {
			return other.p, nil
		}
		return r.firstOf(ctx, at) // the shared read failed, perhaps because its caller was cancelled or its entry was trimmed
	}
	own := &reading{done: make(chan struct{})}
	if r.reads == nil {
		r.reads = map[uint64]*reading{}
	}
	r.reads[at.js] = own
	r.l.mu.Unlock()
	own.p, own.err = r.firstOf(ctx, at)
	r.l.mu.Lock()
	delete(r.reads, at.js)
	r.l.mu.Unlock()
	close(own.done)
	return own.p, own.err
}

// firstOf reads the first message of an entry.
func (r *reader) firstOf(ctx context.Context, at entry) (parcel, error) {
	all, err := r.entryMessages(ctx, at, 1)
	if err != nil {
		return parcel{}, err
	}
	return unpack(all[0]), nil
}

// entryAt reads the entry that an index entry points to.
func (r *reader) entryAt(ctx context.Context, at entry) (engine.Entry, error) {
	all, err := r.entryMessages(ctx, at, int(at.parts))
	if err != nil {
		return engine.Entry{}, err
	}
	return assemble(at, unpackAll(all))
}

// entryMessages reads the first n messages of an entry. There are two harmless reasons why the messages
// may not be found. The entry may have been trimmed, perhaps by another node whose trim has not
// arrived yet. Or the servers that were asked, even the leader, lag behind the server that
// delivered the entry. Therefore entryMessages tries again for a while and catches up in between.
// If the messages are still missing and the entry was not trimmed, the entry is damaged.
func (r *reader) entryMessages(ctx context.Context, at entry, n int) ([]wire.Stored, error) {
	all, err := r.messages(ctx, at.js, n)
	caught := false
	for begun := time.Now(); errors.Is(err, engine.ErrNotFound) && r.keeps(at.seq) && time.Since(begun) < lagMost; {
		if time.Since(begun) > lagFew && !caught {
			if err := r.l.CatchUp(ctx); err != nil {
				return nil, err
			}
			caught = true
		}
		if err := r.l.e.client.Pause(ctx, wire.Retry/20); err != nil {
			return nil, err
		}
		all, err = r.messages(ctx, at.js, n)
	}
	if errors.Is(err, engine.ErrNotFound) && r.keeps(at.seq) {
		// Without a leader, servers can lag for longer, so a majority must agree first.
		if _, err := r.l.shard.Mark(ctx); err != nil {
			return nil, err
		}
		all, err = r.messages(ctx, at.js, n)
	}
	if err == nil {
		return all, nil
	}
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.l.over != nil {
		return nil, r.l.over
	}
	if !r.l.index.has(at.seq) {
		return nil, engine.ErrNotFound
	}
	if errors.Is(err, engine.ErrNotFound) {
		err = fmt.Errorf("%w: entry %d is missing", engine.ErrDamaged, at.seq)
	}
	return nil, err
}

// lagFew is how long servers usually lag behind each other. lagMost is how long entryMessages tries
// to find an acknowledged entry.
const (
	lagFew  = 50 * time.Millisecond
	lagMost = 3 * time.Second
)

// keeps reports whether an entry is in the log, as far as this node knows.
func (r *reader) keeps(seq weir.Seq) bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.l.index.has(seq)
}

// parcel is a message and its records, which are encoded in a header field of the message. If that
// field could not be decoded, there are no records.
type parcel struct {
	records []record.Record
	data    []byte
}

func unpack(m wire.Stored) parcel {
	records, _ := record.Decode(m.Header, m.Seq, record.Newest)
	return parcel{records, m.Data}
}

func unpackAll(all []wire.Stored) []parcel {
	parcels := make([]parcel, len(all))
	for i, m := range all {
		parcels[i] = unpack(m)
	}
	return parcels
}

// record returns the record of the entry that an index entry points to.
func (p parcel) record(at entry) (record.Record, error) {
	if len(p.records) > 0 {
		if i := at.position - p.records[0].Position; i < uint64(len(p.records)) && p.records[i].Seq == at.seq && p.records[i].IsEntry() {
			return p.records[i], nil
		}
	}
	return record.Record{}, fmt.Errorf("%w: entry %d: %w", engine.ErrDamaged, at.seq, record.ErrInvalid)
}

// assemble builds an entry from its messages and verifies its size and checksum.
func assemble(at entry, all []parcel) (engine.Entry, error) {
	r, err := all[0].record(at)
	if err != nil {
		return engine.Entry{}, err
	}
	payload := all[0].data
	if n := uint64(at.offset) + uint64(at.size); len(all[0].records) > 1 && n <= uint64(len(payload)) {
		// Copied, so that the caller does not keep the whole message in memory.
		payload = slices.Clone(payload[at.offset:n])
	}
	for _, p := range all[1:] {
		payload = append(payload, p.data...)
	}
	if len(payload) != int(r.Size) || record.Checksum(payload) != r.Sum {
		return engine.Entry{}, fmt.Errorf("%w: the payload of entry %d fails its checksum", engine.ErrDamaged, at.seq)
	}
	return engine.Entry{Header: r.Header, Payload: payload}, nil
}

// payload reads the payload of a record that is not an entry, such as the note of a trim.
func (r *reader) payload(ctx context.Context, m *record.Record) ([]byte, error) {
	all, err := r.messages(ctx, m.At, int(m.Parts))
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, part := range all {
		b = append(b, part.Data...)
	}
	if n := uint64(m.Offset) + uint64(m.Size); n <= uint64(len(b)) {
		b = b[m.Offset:n]
	}
	if record.Checksum(b) != m.Sum {
		return nil, fmt.Errorf("%w: payload fails its checksum", engine.ErrDamaged)
	}
	return b, nil
}

// messages reads n messages of the log, starting at a JetStream sequence. It first asks any
// replica. If that replica does not have the messages, it asks the leader. If there is no leader,
// it asks any replica again, because a different one may answer the next time. The error is
// engine.ErrNotFound if the messages do not exist.
func (r *reader) messages(ctx context.Context, js uint64, n int) ([]wire.Stored, error) {
	deadline := time.Now().Add(r.l.e.opts.Patience)
	for {
		var all []wire.Stored
		var err error
		if n == 1 {
			all, _, err = r.l.e.client.Read(ctx, r.l.shard.Stream, wire.Query{Seq: js})
		} else {
			all, _, err = r.l.e.client.Read(ctx, r.l.shard.Stream, wire.Query{Seq: js, NextFor: r.l.subject, Batch: n, MaxBytes: anySpace})
		}
		switch {
		case err == nil && len(all) == n && all[0].Seq == js:
			return all, nil
		case err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			// The replica lags behind or hangs, or the messages do not exist.
			leader, cancel := context.WithTimeout(ctx, r.l.e.client.Apart(wire.ReadWithin))
			var m wire.Stored
			m, err = r.l.e.client.Leader(leader, r.l.shard.Stream, wire.Query{Seq: js})
			cancel()
			if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
				return nil, err
			}
			if err == nil && n == 1 {
				return []wire.Stored{m}, nil
			}
		case r.l.e.client.Life.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return nil, engine.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w: read message %d of %s: %v", engine.ErrUnavailable, js, r.l.shard.Stream, err)
		}
		if err := r.l.e.client.Pause(ctx, wire.Retry/8); err != nil {
			return nil, err
		}
	}
}

// Scan reads about runBytes at a time. If entries are stored next to each other, it reads them with
// one request.
func (r *reader) Scan(ctx context.Context, start weir.Seq, runBytes int, visit func(*engine.Entry) bool) error {
	if runBytes == 0 {
		runBytes = longRun
	}
	for {
		at, err := r.nextRun(ctx, start, runBytes)
		if err != nil || len(at) == 0 {
			return err
		}
		entries, err := r.fetch(ctx, at)
		if err != nil {
			return err
		}
		for _, e := range entries { // e is a copy, because other scans share the entries
			r.l.mu.Lock()
			over, gone := r.l.over, e.Seq < r.l.index.low
			r.l.mu.Unlock()
			if over != nil {
				return over
			}
			if !gone && !visit(&e) {
				return nil
			}
		}
		start = at[len(at)-1].seq + 1
	}
}

// nextRun returns the index entries of the next run, which is the part of the log that Scan reads
// at once.
func (r *reader) nextRun(ctx context.Context, start weir.Seq, bytes int) ([]entry, error) {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if err := r.l.usable(ctx); err != nil {
		return nil, err
	}
	var at []entry
	for _, e := range r.l.index.from(max(start, r.l.index.low)) {
		if len(at) == runMost || len(at) > 0 && bytes <= 0 {
			break
		}
		at = append(at, e)
		bytes -= int(e.size) + 128
	}
	return at, nil
}

// fetch is a run that is being read, or the last run that was read. It is shared, because many
// subscribers of a log often need the same run at the same time.
type fetch struct {
	first, last uint64 // positions in the log of the run's first and last entry
	n           int    // number of entries; a run with the same first and last has more if a batch has filled a gap since
	done        chan struct{}
	entries     []engine.Entry
	err         error
}

// keptFetch is the maximum size of a run, in bytes of payload, that stays in memory for callers
// that ask a little later.
const keptFetch = 64 << 10

// fetch reads the entries of a run once for all callers that need it at the same time. The callers
// share the entries and must not modify them.
func (r *reader) fetch(ctx context.Context, at []entry) ([]engine.Entry, error) {
	f := &fetch{first: at[0].position, last: at[len(at)-1].position, n: len(at), done: make(chan struct{})}
	r.l.mu.Lock()
	other := r.fetched
	if other == nil || other.first != f.first || other.last != f.last || other.n != f.n {
		other, r.fetched = nil, f
	}
	r.l.mu.Unlock()
	if other != nil {
		if err := ctx.Err(); err != nil { // select would choose at random between this and a read that is done
			return nil, err
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if other.err == nil {
			return other.entries, nil
		}
		return r.entries(ctx, at) // the shared read failed, perhaps because its caller was cancelled
	}
	f.entries, f.err = r.entries(ctx, at)
	size := 0
	for i := range f.entries {
		size += len(f.entries[i].Payload)
	}
	close(f.done)
	if f.err != nil || size > keptFetch {
		r.l.mu.Lock()
		if r.fetched == f {
			r.fetched = nil
		}
		r.l.mu.Unlock()
	}
	return f.entries, f.err
}

// entries reads the entries of a run. It leaves out entries that are trimmed in the meantime.
func (r *reader) entries(ctx context.Context, at []entry) ([]engine.Entry, error) {
	read := map[uint64]parcel{} // by JetStream sequence
	if n := neighbours(at); n > 0 && len(at) > 1 {
		// A replica may lag behind or return fewer messages. The missing ones are read one by one
		// below.
		all, _, err := r.l.e.client.Read(ctx, r.l.shard.Stream, wire.Query{Seq: at[0].js, NextFor: r.l.subject, Batch: n, MaxBytes: anySpace})
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for _, m := range all {
			read[m.Seq] = unpack(m)
		}
	}
	entries := make([]engine.Entry, 0, len(at))
	for _, a := range at {
		parts := gather(read, a)
		if parts == nil {
			all, err := r.entryMessages(ctx, a, int(a.parts))
			if errors.Is(err, engine.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if parts = unpackAll(all); len(parts) == 1 {
				read[a.js] = parts[0] // the message may hold further entries of the run
			}
		}
		e, err := assemble(a, parts)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// gather returns the messages of an entry, which have consecutive sequences. It returns nil if one
// of them was not read.
func gather(read map[uint64]parcel, a entry) []parcel {
	parts := make([]parcel, 0, a.parts)
	for js := a.js; js < a.js+uint64(a.parts); js++ {
		p, ok := read[js]
		if !ok {
			return nil
		}
		parts = append(parts, p)
	}
	return parts
}

// neighbours returns how many messages one request must read to get all entries from the first to
// the last. It returns 0 if one request is not worthwhile. Between the entries there may be other
// records, which the caller does not need. Each such record counts as a whole message, because the
// index does not know which records share a message.
func neighbours(at []entry) int {
	first, last := at[0], at[len(at)-1]
	if last.position < first.position {
		return 0
	}
	wanted := map[uint64]uint32{}
	places := 0
	for _, a := range at {
		if wanted[a.js] = a.parts; a.position >= first.position && a.position <= last.position {
			places += int(a.parts)
		}
	}
	messages := 0
	for _, n := range wanted {
		messages += int(n)
	}
	n := int(last.position-first.position) + int(last.parts) - places + messages
	if n > 2*messages+8 {
		return 0
	}
	return n
}
