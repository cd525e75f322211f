package stream_test

import (
	"slices"

	"weir"
	"weir/internal/stream"
)

// model implements the decisions (docs/decisions.md) in the simplest way. It remembers every batch
// that was ever stored and every missing sequence, one by one, and computes everything else from
// scratch on each call. It is slow, but short enough to be verified by reading.
type model struct {
	rules   stream.Rules
	created weir.Time

	stored  map[weir.Seq]stream.Header // every batch ever stored
	last    weir.Time                  // time of the newest entry
	evicted map[weir.Seq]bool          // evicted batches
	closed  map[weir.Seq]bool          // missing sequences that will never be stored
	since   map[weir.Seq]weir.Time     // missing sequences that can still be filled, with the start of their grace (the time for filling them)
	spent   map[weir.Seq]bool          // batches whose idempotency key has expired
	dropped map[weir.Seq]bool          // evicted batches whose key was forgotten to make room for newer keys
	noted   map[weir.Seq]bool          // batches whose key is in the note of the last trim (the data that is stored with it)
	marked  weir.Seq                   // the highest sequence that a marker (a log entry that closes gaps) closed; 0 if there is none
	ended   bool                       // the stream was closed (D37)
	held    []weir.Seq                 // sequences for which requests are being received, one element per request
}

func newModel(r stream.Rules, created weir.Time) *model {
	return &model{
		rules: r, created: created, last: created,
		stored: map[weir.Seq]stream.Header{}, evicted: map[weir.Seq]bool{},
		closed: map[weir.Seq]bool{}, since: map[weir.Seq]weir.Time{}, spent: map[weir.Seq]bool{},
		dropped: map[weir.Seq]bool{}, noted: map[weir.Seq]bool{},
	}
}

// cursor is the highest sequence ever stored, or 0 before the first batch (D1).
func (m *model) cursor() (highest weir.Seq) {
	for seq := range m.stored {
		highest = max(highest, seq)
	}
	return highest
}

// updated is when the batch at the cursor was stored; before the first batch, when the stream was
// created (D13).
func (m *model) updated() weir.Time {
	if h, ok := m.stored[m.cursor()]; ok {
		return h.Time
	}
	return m.created
}

// bytes is the size of all kept batches (D11).
func (m *model) bytes() (sum int64) {
	for seq, h := range m.stored {
		if !m.evicted[seq] {
			sum += int64(h.Size)
		}
	}
	return sum
}

// charge is the number of bytes that all kept batches count towards max_bytes. Each counts with its
// size, but at least with 128 bytes, plus the length of its key (D12).
func (m *model) charge() (sum int64) {
	for seq, h := range m.stored {
		if !m.evicted[seq] {
			sum += max(int64(h.Size), 128) + int64(h.KeySize)
		}
	}
	return sum
}

// low is the sequence just above the highest evicted batch. Before the first eviction it is 0, or 1
// if sequence 0 is closed.
func (m *model) low() (low weir.Seq) {
	if m.closed[0] {
		low = 1
	}
	for seq := range m.evicted {
		low = max(low, seq+1)
	}
	return low
}

// final is the lowest missing sequence that can still be filled; if there is none, the sequence
// above the cursor.
func (m *model) final() weir.Seq { return m.settled(0) }

// settled is the lowest missing sequence at or above the sequence start that can still be filled;
// if there is none, the sequence above the cursor.
func (m *model) settled(start weir.Seq) weir.Seq {
	if len(m.stored) == 0 {
		return 0
	}
	end := m.cursor() + 1
	for seq := range m.since {
		if seq >= start {
			end = min(end, seq)
		}
	}
	return end
}

// lookup reports whether a sequence can be read. Below the low mark, a sequence that was never
// stored counts as evicted, except sequence 0.
func (m *model) lookup(seq, low weir.Seq) stream.Presence {
	_, stored := m.stored[seq]
	switch {
	case m.evicted[seq]:
		return stream.Evicted
	case stored:
		return stream.Kept
	case seq > 0 && seq < low:
		return stream.Evicted
	}
	return stream.Unknown
}

// decide implements the table of D3, and D2 and D25 for a sequence that the server chooses. It
// returns the sequence under which the batch is to be stored, the sequence of the batch that it
// duplicates, or the code of the refusal.
func (m *model) decide(p stream.Publish, now weir.Time) (stream.Outcome, weir.Seq, weir.Code) {
	c, seq := m.cursor(), p.Seq
	_, stored := m.stored[seq]
	_, awaited := m.since[seq]
	switch {
	case !p.Chosen:
		if at, known := m.keyed(p.Key, now); known {
			return stream.Duplicate, at, ""
		}
		if m.ended {
			return stream.Refused, 0, weir.StreamClosed
		}
		if seq = c + 1; seq > weir.MaxSeq {
			return stream.Refused, 0, weir.InvalidSequence
		}
	case seq > weir.MaxSeq:
		return stream.Refused, 0, weir.InvalidSequence
	case stored && !m.evicted[seq]:
		return stream.Duplicate, seq, ""
	case m.ended && (seq >= m.low() || seq == 0 && !stored):
		return stream.Refused, 0, weir.StreamClosed
	case p.Contiguous && seq > c+1:
		return stream.Refused, 0, weir.SequenceNotNext
	case c < seq && seq <= c+1024:
	case seq == 0 && len(m.stored) == 0:
	case seq < c && awaited:
	case seq <= c:
		return stream.Refused, 0, weir.InvalidSequence
	default:
		return stream.Refused, 0, weir.SequenceTooFarAhead
	}
	if p.Size > m.rules.MaxBytes {
		return stream.Refused, 0, weir.PayloadTooLarge
	}
	return stream.Stored, seq, ""
}

// keyed finds the batch that was published with a key, whether or not the batch is still kept.
// There can be two such batches: the key of the first was forgotten, a second batch was published
// with the same key, and then a crash brought the key of the first back. The second batch counts,
// because it was acknowledged last.
func (m *model) keyed(key string, now weir.Time) (highest weir.Seq, known bool) {
	for seq, h := range m.stored {
		if key != "" && h.Key == weir.DigestKey(key) && !m.dropped[seq] && !m.spent[seq] && !m.keyOver(h, now) {
			highest, known = max(highest, seq), true
		}
	}
	return highest, known
}

// drop forgets the keys of evicted batches, except the newest ones (D25).
func (m *model) drop() {
	var evicted []weir.Seq
	for seq := range m.evicted {
		if m.stored[seq].KeySize > 0 && !m.dropped[seq] {
			evicted = append(evicted, seq)
		}
	}
	slices.Sort(evicted)
	for _, seq := range evicted[:max(0, len(evicted)-m.rules.Keys)] {
		m.dropped[seq] = true
	}
}

// trim records which keys of evicted batches are in the note of a trim.
func (m *model) trim() {
	m.noted = map[weir.Seq]bool{}
	for seq := range m.evicted {
		m.noted[seq] = m.stored[seq].KeySize > 0 && !m.dropped[seq] && !m.spent[seq]
	}
}

// keyOver reports whether the key of a batch has expired. A key is valid for at most 24 h (D25). A
// clock that steps back makes no batch younger (D14).
func (m *model) keyOver(h stream.Header, now weir.Time) bool {
	return h.Time.Add(weir.IdempotencyKeyLife) <= max(now, m.last)
}

// store adds a batch. The batch is late if its sequence is below the cursor. Its time is now, or
// the time of the newest entry if the clock is behind that (D14).
func (m *model) store(p stream.Publish, seq weir.Seq, now weir.Time) stream.Header {
	c, first := m.cursor(), len(m.stored) == 0
	h := stream.Header{Seq: seq, Time: max(now, m.last), Size: uint32(p.Size), Late: !first && seq < c}
	if !p.Chosen && p.Key != "" {
		h.Key, h.KeySize = weir.DigestKey(p.Key), uint16(len(p.Key))
	}
	m.tick(h.Time)
	m.stored[seq] = h
	delete(m.since, seq)
	for missing := c + 1; missing < seq; missing++ {
		m.since[missing] = h.Time // the grace starts with the first batch above the missing sequence (D4)
	}
	if first && seq > 0 {
		m.closed[0] = true // sequence 0 is never waited for (D4)
	}
	if h.Ends = p.Ends && !p.Chosen; h.Ends {
		m.end(seq, h.Time)
	}
	return h
}

// tick records the time of an entry. If the grace of a missing sequence began at a time that is in
// the future now, the clock has stepped back, and that grace restarts now.
func (m *model) tick(now weir.Time) {
	m.last = max(m.last, now)
	m.behind(now)
}

func (m *model) behind(now weir.Time) {
	for seq, since := range m.since {
		m.since[seq] = min(since, now)
	}
}

// due returns the lowest and highest missing sequence whose grace has ended (D4).
func (m *model) due(now weir.Time) (first, last weir.Seq, some bool) {
	m.behind(now)
	for seq, since := range m.since {
		if since.Add(m.rules.GapGrace) > now || m.blocked(seq) {
			continue
		}
		if !some {
			first, last, some = seq, seq, true
		}
		first, last = min(first, seq), max(last, seq)
	}
	return first, last, some
}

// blocked reports whether a request is being received for this missing sequence or for a missing
// sequence below it. Such a gap must not close, because its batch may still arrive.
func (m *model) blocked(seq weir.Seq) bool {
	for _, held := range m.held {
		if _, missing := m.since[held]; missing && held <= seq {
			return true
		}
	}
	return false
}

// release ends a request for a sequence.
func (m *model) release(seq weir.Seq) {
	i := slices.Index(m.held, seq)
	m.held = slices.Delete(m.held, i, i+1)
}

// elapse tells the model that time has passed. The grace of blocked sequences is paused for that
// time.
func (m *model) elapse(from, to weir.Time) {
	if to <= from || !m.blocked(weir.MaxSeq) {
		return
	}
	m.behind(to)
	for seq, since := range m.since {
		if m.blocked(seq) {
			m.since[seq] = min(since+(to-from), to)
		}
	}
}

// restartGrace gives all missing sequences their whole grace again, from now.
func (m *model) restartGrace(now weir.Time) {
	for missing := range m.since {
		m.since[missing] = now
	}
}

// close closes the missing sequences up to the highest one that is due.
func (m *model) close(now weir.Time) {
	_, last, _ := m.due(now)
	m.tick(max(now, m.last))
	for seq := range m.since {
		if seq <= last {
			m.shut(seq)
		}
	}
	m.marked = max(m.marked, last)
}

// end closes the stream with the entry that has the sequence seq. It also closes every sequence
// that is still missing (D37).
func (m *model) end(seq weir.Seq, now weir.Time) {
	m.tick(max(now, m.last))
	for missing := range m.since {
		m.shut(missing)
	}
	m.ended, m.marked = true, seq
}

func (m *model) shut(seq weir.Seq) {
	delete(m.since, seq)
	m.closed[seq] = true
}

// evict evicts every expired batch and all batches below it. Then it evicts the lowest batches
// until the rest fit into max_bytes (D12). Sequences missing below an evicted batch are closed
// (D4).
func (m *model) evict(now weir.Time) (count int) {
	before := len(m.evicted)
	for seq, h := range m.stored {
		if h.Time.Add(m.rules.Retention) <= max(now, m.last) {
			m.evictThrough(seq)
		}
	}
	for m.charge() > m.rules.MaxBytes {
		lowest := m.cursor()
		for seq := range m.stored {
			if !m.evicted[seq] {
				lowest = min(lowest, seq)
			}
		}
		if lowest == m.cursor() {
			break // the batch at the cursor always stays
		}
		m.evictThrough(lowest)
	}
	m.spend(now)
	m.drop()
	return len(m.evicted) - before
}

func (m *model) evictThrough(highest weir.Seq) {
	for seq := range m.stored {
		if seq <= highest {
			m.evicted[seq] = true
		}
	}
	for seq := range m.since {
		if seq < highest {
			m.shut(seq)
		}
	}
}

// spend records which keys have expired. They stay expired even if the clock steps back.
func (m *model) spend(now weir.Time) {
	for seq, h := range m.stored {
		if m.keyOver(h, now) {
			m.spent[seq] = true
		}
	}
}

// restart simulates a crash after the log was trimmed below the sequence low. Batches that were
// evicted after that trim are back. A missing sequence is closed if it is below low, or at or below
// a sequence that a marker closed. Otherwise it gets a new grace period (D4).
func (m *model) restart(low weir.Seq, now weir.Time) {
	missing := map[weir.Seq]bool{}
	for seq := range m.closed {
		missing[seq] = true
	}
	for seq := range m.since {
		missing[seq] = true
	}
	m.evicted, m.closed = map[weir.Seq]bool{}, map[weir.Seq]bool{}
	m.since, m.spent, m.dropped = map[weir.Seq]weir.Time{}, map[weir.Seq]bool{}, map[weir.Seq]bool{}
	for seq := range m.stored {
		if seq < low {
			m.evicted[seq] = true
			m.dropped[seq] = !m.noted[seq]
		}
	}
	for seq := range missing {
		if seq == 0 || seq < low || seq <= m.marked {
			m.closed[seq] = true
		} else {
			m.since[seq] = now
		}
	}
	m.spend(now)
}
