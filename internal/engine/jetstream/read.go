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
)

const (
	longRun  = 1 << 20 // bytes of a scan that says nothing
	runMost  = 256     // entries
	anySpace = 32 << 20
)

// Read returns an entry.
func (l *log) Read(ctx context.Context, seq weir.Seq) (engine.Entry, error) {
	l.catchUpToRead(ctx)
	at, err := l.where(ctx, seq)
	if err != nil {
		return engine.Entry{}, err
	}
	return l.entryAt(ctx, at)
}

// Header returns an entry without its payload. JetStream has no way to read the header of a message alone, so of a batch
// of several messages the first one is read.
func (l *log) Header(ctx context.Context, seq weir.Seq) (engine.Header, error) {
	at, err := l.where(ctx, seq)
	if err != nil {
		return engine.Header{}, err
	}
	p, err := l.parcelOf(ctx, at)
	if err != nil {
		return engine.Header{}, err
	}
	r, err := p.record(at)
	return r.Header, err
}

// where is what the index has of an entry.
func (l *log) where(ctx context.Context, seq weir.Seq) (entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return entry{}, err
	}
	i, found := l.find(seq)
	if !found {
		return entry{}, engine.ErrNotFound
	}
	return l.index[i], nil
}

// reading is a message that is being read for the headers in it.
type reading struct {
	done chan struct{} // closed when it was
	p    parcel
	err  error
}

// parcelOf reads the message that an entry begins in. Many may want the same one at once, as when a publisher repeats all that it lost the
// answers of: they ask for it once.
func (l *log) parcelOf(ctx context.Context, at entry) (parcel, error) {
	l.mu.Lock()
	if other := l.reads[at.js]; other != nil {
		l.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return parcel{}, ctx.Err()
		}
		if other.err == nil {
			return other.p, nil
		}
		return l.firstOf(ctx, at) // the other one's entry may have been trimmed, or its caller gone
	}
	r := &reading{done: make(chan struct{})}
	l.reads[at.js] = r
	l.mu.Unlock()
	r.p, r.err = l.firstOf(ctx, at)
	l.mu.Lock()
	delete(l.reads, at.js)
	l.mu.Unlock()
	close(r.done)
	return r.p, r.err
}

func (l *log) firstOf(ctx context.Context, at entry) (parcel, error) {
	all, err := l.found(ctx, at, 1)
	if err != nil {
		return parcel{}, err
	}
	return unpack(all[0]), nil
}

// entryAt reads the entry that the index points to.
func (l *log) entryAt(ctx context.Context, at entry) (engine.Entry, error) {
	all, err := l.found(ctx, at, int(at.parts))
	if err != nil {
		return engine.Entry{}, err
	}
	return assemble(at, unpackAll(all))
}

// found reads n messages of an entry. When they are not there, the entry may have been trimmed, also by another process that was not
// heard yet; or those that were asked lag behind the one that told us of it, be it the leader itself. It is damage when it is
// neither.
func (l *log) found(ctx context.Context, at entry, n int) ([]stored, error) {
	all, err := l.messages(ctx, at.js, n)
	caught := false
	for begun := time.Now(); errors.Is(err, engine.ErrNotFound) && l.keeps(at.seq) && time.Since(begun) < lagMost; {
		if time.Since(begun) > lagFew && !caught {
			if err := l.CatchUp(ctx); err != nil {
				return nil, err
			}
			caught = true
		}
		if err := pause(ctx, retry/20); err != nil {
			return nil, err
		}
		all, err = l.messages(ctx, at.js, n)
	}
	if err == nil {
		return all, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return nil, l.over
	}
	if _, kept := l.find(at.seq); !kept {
		return nil, engine.ErrNotFound
	}
	if errors.Is(err, engine.ErrNotFound) {
		err = fmt.Errorf("%w: entry %d is not there", engine.ErrDamaged, at.seq)
	}
	return nil, err
}

// lagFew is how long servers most often lag behind each other, and lagMost how long what was acknowledged may take to be found.
const (
	lagFew  = 50 * time.Millisecond
	lagMost = 3 * time.Second
)

// keeps tells whether an entry is in the log, as far as is known.
func (l *log) keeps(seq weir.Seq) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, kept := l.find(seq)
	return kept
}

// parcel is a message with what it says of itself; nothing when that cannot be read.
type parcel struct {
	records []message
	data    []byte
}

func unpack(m stored) parcel {
	records, _ := decode(m.header, m.seq)
	return parcel{records, m.data}
}

func unpackAll(all []stored) []parcel {
	parcels := make([]parcel, len(all))
	for i, m := range all {
		parcels[i] = unpack(m)
	}
	return parcels
}

// record is the record of an entry that the index points to.
func (p parcel) record(at entry) (record, error) {
	if len(p.records) > 0 {
		if i := at.position - p.records[0].position; i < uint64(len(p.records)) && p.records[i].Seq == at.seq && p.records[i].isEntry() {
			return p.records[i].record, nil
		}
	}
	return record{}, fmt.Errorf("%w: entry %d: %w", engine.ErrDamaged, at.seq, errRecord)
}

// assemble makes an entry of its messages, and checks that it is what was appended.
func assemble(at entry, all []parcel) (engine.Entry, error) {
	r, err := all[0].record(at)
	if err != nil {
		return engine.Entry{}, err
	}
	payload := all[0].data
	if n := uint64(at.offset) + uint64(at.size); len(all[0].records) > 1 && n <= uint64(len(payload)) {
		payload = slices.Clone(payload[at.offset:n]) // who keeps it does not keep all
	}
	for _, p := range all[1:] {
		payload = append(payload, p.data...)
	}
	if len(payload) != int(r.Size) || checksum(payload) != r.sum {
		return engine.Entry{}, fmt.Errorf("%w: the payload of entry %d does not check out", engine.ErrDamaged, at.seq)
	}
	return engine.Entry{Header: r.Header, Payload: payload}, nil
}

// payload reads what a record that is no entry holds.
func (l *log) payload(ctx context.Context, m *message) ([]byte, error) {
	all, err := l.messages(ctx, m.js, int(m.parts))
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, part := range all {
		b = append(b, part.data...)
	}
	if n := uint64(m.offset) + uint64(m.Size); n <= uint64(len(b)) {
		b = b[m.offset:n]
	}
	if checksum(b) != m.sum {
		return nil, fmt.Errorf("%w: it does not check out", engine.ErrDamaged)
	}
	return b, nil
}

// messages reads n messages of the log from a place on. Any replica may answer; what it does not have is asked of the
// leader, and of any replica again when there is none: it need not be the same one. engine.ErrNotFound: they are not there.
func (l *log) messages(ctx context.Context, js uint64, n int) ([]stored, error) {
	deadline := time.Now().Add(l.e.opts.Patience)
	for {
		var all []stored
		var err error
		if n == 1 {
			all, err = l.e.read(ctx, l.shard.stream, query{Seq: js})
		} else {
			all, err = l.e.read(ctx, l.shard.stream, query{Seq: js, NextFor: l.subject, Batch: n, MaxBytes: anySpace})
		}
		switch {
		case err == nil && len(all) == n && all[0].seq == js:
			return all, nil
		case err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // it lags behind, or they are gone, or it is
			leader, cancel := context.WithTimeout(ctx, readWithin)
			var m stored
			m, err = l.e.askLeader(leader, l.shard.stream, query{Seq: js})
			cancel()
			if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
				return nil, err
			}
			if err == nil && n == 1 {
				return []stored{m}, nil
			}
		case l.e.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return nil, engine.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w: read message %d of %s: %v", engine.ErrUnavailable, js, l.shard.stream, err)
		}
		if err := pause(ctx, retry/8); err != nil {
			return nil, err
		}
	}
}

// Scan reads in runs: as many entries as the run has bytes, with one question where they lie behind each other.
func (l *log) Scan(ctx context.Context, from weir.Seq, run int, visit func(*engine.Entry) bool) error {
	if run == 0 {
		run = longRun
	}
	for {
		at, err := l.run(ctx, from, run)
		if err != nil || len(at) == 0 {
			return err
		}
		entries, err := l.fetch(ctx, at)
		if err != nil {
			return err
		}
		for _, e := range entries { // which are shared
			l.mu.Lock()
			over, gone := l.over, e.Seq < l.low
			l.mu.Unlock()
			if over != nil {
				return over
			}
			if !gone && !visit(&e) {
				return nil
			}
		}
		from = at[len(at)-1].seq + 1
	}
}

// run is where the next entries are.
func (l *log) run(ctx context.Context, from weir.Seq, bytes int) ([]entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	i, _ := l.find(max(from, l.low))
	var at []entry
	for ; i < len(l.index) && len(at) < runMost && (len(at) == 0 || bytes > 0); i++ {
		at = append(at, l.index[i])
		bytes -= int(l.index[i].size) + 128
	}
	return at, nil
}

// fetch is a run that is being read, or was: many who follow a log want the same one at the same time.
type fetch struct {
	first, last uint64 // places
	n           int    // entries: one that came late lies between the two
	done        chan struct{}
	entries     []engine.Entry
	err         error
}

// keptFetch is how many bytes of payload of the last run are kept for whoever comes a little later.
const keptFetch = 64 << 10

// fetch reads the entries of a run, once for all who want it now. Nobody writes into them.
func (l *log) fetch(ctx context.Context, at []entry) ([]engine.Entry, error) {
	f := &fetch{first: at[0].position, last: at[len(at)-1].position, n: len(at), done: make(chan struct{})}
	l.mu.Lock()
	other := l.fetched
	if other == nil || other.first != f.first || other.last != f.last || other.n != f.n {
		other, l.fetched = nil, f
	}
	l.mu.Unlock()
	if other != nil {
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if other.err == nil {
			return other.entries, nil
		}
		return l.entries(ctx, at) // its caller may just have gone away
	}
	f.entries, f.err = l.entries(ctx, at)
	size := 0
	for i := range f.entries {
		size += len(f.entries[i].Payload)
	}
	close(f.done)
	if f.err != nil || size > keptFetch {
		l.mu.Lock()
		if l.fetched == f {
			l.fetched = nil
		}
		l.mu.Unlock()
	}
	return f.entries, f.err
}

// entries reads the entries of a run, those excepted that are trimmed meanwhile.
func (l *log) entries(ctx context.Context, at []entry) ([]engine.Entry, error) {
	read := map[uint64]parcel{} // by their sequence in the stream
	if n := neighbours(at); n > 0 && len(at) > 1 {
		// What does not come is read one by one: a replica may lag behind, or stop early.
		all, err := l.e.read(ctx, l.shard.stream, query{Seq: at[0].js, NextFor: l.subject, Batch: n, MaxBytes: anySpace})
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for _, m := range all {
			read[m.seq] = unpack(m)
		}
	}
	entries := make([]engine.Entry, 0, len(at))
	for _, a := range at {
		parts := gather(read, a)
		if parts == nil {
			all, err := l.found(ctx, a, int(a.parts))
			if errors.Is(err, engine.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if parts = unpackAll(all); len(parts) == 1 {
				read[a.js] = parts[0] // others may be in it
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

// gather is the messages of an entry, which lie behind each other; nil when one of them was not read.
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

// neighbours is how many messages lie from the first entry to the last, if it is worth reading them all. Between those that are wanted
// there may be others, of which each counts as a message.
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
