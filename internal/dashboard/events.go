package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir"
	"weir/internal/api"
	"weir/internal/hub"
)

// The event browser of a stream's page reads stored batches through two addresses. The first
// address sends a list of events, with only the first characters of each event. The second address
// sends one event. Every request is bounded in rows, bytes and time, so neither a large stream nor
// large events can occupy the server or the browser. A response that stopped at a bound says where
// to continue.
const (
	maxRows   = 100                    // maximum number of events in a response
	runBytes  = 1 << 20                // bytes that are read at a time
	runLimit  = 1000                   // batches that are read at a time
	listBytes = 8 << 20                // bytes that a request without a search reads
	findBytes = 64 << 20               // bytes that a search reads
	findTime  = 200 * time.Millisecond // time after which a response ends, if it has read at least one batch

	maxSearch   = 200 // maximum length of the text to search for, in bytes
	rowText     = 240 // bytes of an event that its row shows
	rowTextHex  = 32  // bytes of a binary event that its row shows
	maxFilename = 40  // maximum number of bytes of the stream's name in the name of a downloaded file
)

// place is the position of an event in a stream.
type place struct {
	seq   weir.Seq
	event int // index in the batch
}

func (p place) String() string { return fmt.Sprintf("%d.%d", p.seq, p.event) }

// parsePlace parses a sequence, or a sequence and the index of an event, such as 12.3.
func parsePlace(text string) (p place, err error) {
	seq, event, more := strings.Cut(text, ".")
	if p.seq, err = weir.ParseSeq(seq); err == nil && more {
		p.event, err = strconv.Atoi(event)
	}
	if err != nil || p.event < 0 {
		return place{}, weir.Errorf(weir.InvalidRequest, "not a sequence number")
	}
	return p, nil
}

// browsing is one request for a list of events.
type browsing struct {
	s     *hub.Stream
	down  bool     // the request is for older events
	at    place    // the list has the events below this place if down is true, otherwise the events from this place on
	floor weir.Seq // the list has no events below this sequence; used only if down is true
	text  []byte   // events must contain this text, which is in lower case; empty if all events are wanted
	where *condition

	rows    []eventRow
	batches int  // batches that were read
	bytes   int  // bytes that were read
	more    bool // a bound was reached; the field at is the place to continue

	folded []byte // buffer for a payload in lower case
}

// events returns a list of events, newest first, as JSON. The response also has the figures of the
// same moment, so that the events and the figures on the page never contradict each other.
func (v *visit) events() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	st, err := v.lookAt(s, 1, func(hub.Mark) {})
	if err != nil {
		return err
	}
	b, err := v.browsing(s, st.Object.Cursor+1)
	if err != nil {
		return err
	}
	loan := v.API.Lend(v.w, v.r)
	defer loan.End()
	if err := b.read(v, loan); err != nil {
		return err
	}
	answer, err := v.figuresOf(&st, streamParts[:len(streamParts)-1])
	if err != nil {
		return err
	}
	answer["rows"], answer["more"], answer["next"] = b.rows, b.more, b.at.String()
	answer["searched"], answer["read"] = b.batches, b.bytes
	return v.json(answer)
}

// browsing parses the parameters of a list. The parameter end is the sequence above all batches.
func (v *visit) browsing(s *hub.Stream, end weir.Seq) (*browsing, error) {
	text := v.r.URL.Query().Get("q")
	if len(text) > maxSearch {
		return nil, weir.Errorf(weir.InvalidRequest, "the text to search for is longer than %d bytes", maxSearch)
	}
	b := &browsing{s: s, down: true, at: place{seq: end}, text: fold(nil, []byte(text)), rows: []eventRow{}}
	var err error
	var floor place
	switch before, from, since := v.query("before"), v.query("from"), v.query("since"); {
	case before != "":
		b.at, err = parsePlace(before)
	case from != "":
		b.down = false
		b.at, err = parsePlace(from)
	case since != "":
		b.down = false
		t, wrong := time.Parse(time.RFC3339Nano, since)
		if wrong != nil {
			return nil, weir.Errorf(weir.InvalidRequest, "not a time")
		}
		b.at.seq, err = hub.FirstSince(v.r.Context(), s, weir.TimeOf(t))
	}
	if text := v.query("where"); err == nil && text != "" {
		b.where, err = parseCondition(text)
	}
	if text := v.query("floor"); err == nil && text != "" {
		floor, err = parsePlace(text)
	}
	b.floor = floor.seq
	return b, err
}

// read reads events until there are no more or a bound is reached.
func (b *browsing) read(v *visit, loan *api.Loan) error {
	w := hub.Window{From: b.at.seq, Below: 1 << 62, Limit: runLimit, Bytes: runBytes}
	if b.down {
		w.From, w.Below, w.Down = b.floor, b.at.seq, true
		if b.at.event > 0 {
			w.Below++ // the list also has the events of this batch that are below the place
		}
	}
	most, factor := findBytes, 2 // a search holds each payload twice: as it is stored, and in lower case
	if len(b.text) == 0 && b.where == nil {
		most, factor, w.Limit = listBytes, 1, maxRows
	}
	for until := time.Now().Add(findTime); !w.IsEmpty(); {
		if b.more = b.bytes >= most || b.batches > 0 && time.Now().After(until); b.more {
			break
		}
		step := step{browsing: b, most: maxRows - len(b.rows), next: b.at}
		done, err := hub.Browse(v.r.Context(), b.s, w, func(bytes int) error { return loan.Reserve(factor * bytes) }, step.take)
		if err != nil {
			return err
		}
		b.batches, b.bytes = b.batches+done.Batches, b.bytes+done.Bytes
		b.add(step.rows, done.Low)
		if w = done.Rest; step.stopped {
			b.at, b.more = step.next, true
			return nil
		}
		if b.at = (place{seq: w.From}); b.down {
			b.at.seq = w.Below
		}
		if len(b.rows) == maxRows {
			b.more = !w.IsEmpty()
			break
		}
	}
	return nil
}

// add adds the rows of a step to b.rows. The rows of a step are in increasing order, but b.rows has
// the newest event first. add leaves out rows of batches that were evicted meanwhile.
func (b *browsing) add(rows []eventRow, low weir.Seq) {
	rows = slices.DeleteFunc(rows, func(r eventRow) bool { return r.Seq < low })
	slices.Reverse(rows)
	if b.down {
		b.rows = append(b.rows, rows...)
	} else {
		b.rows = append(rows, b.rows...)
	}
}

// step collects the rows of the batches that are read at once. Batches come in increasing order. If
// the request is for older events (down), step keeps only the highest rows.
type step struct {
	*browsing
	most    int // maximum number of rows
	rows    []eventRow
	next    place // where to continue if the step has stopped
	stopped bool  // there are more events than the field most allows
}

// take adds the events of a batch.
func (t *step) take(batch *weir.Batch) {
	if !t.down && t.stopped {
		return
	}
	payload, folded := batch.Payload, []byte(nil)
	if len(t.text) > 0 {
		t.folded = fold(t.folded[:0], payload)
		folded = t.folded
		if !bytes.Contains(folded, t.text) {
			return
		}
	}
	if t.where != nil && !t.where.mayHold(payload) {
		return
	}
	first, below := 0, int(batch.Events)
	if batch.Seq == t.at.seq && t.down {
		below = t.at.event
	} else if batch.Seq == t.at.seq {
		first = t.at.event
	}
	eachEvent(t.s.Mode, payload, func(i, from, to int) bool {
		switch {
		case i < first || folded != nil && !bytes.Contains(folded[from:to], t.text):
			return true
		case i >= below:
			return false
		case t.where != nil && !t.where.holds(payload[from:to]):
			return true
		case !t.down && len(t.rows) == t.most:
			t.next, t.stopped = place{batch.Seq, i}, true
			return false
		}
		t.rows = append(t.rows, newRow(t.s.Mode, batch, i, payload[from:to]))
		if len(t.rows) >= 2*t.most+1 {
			t.trim()
		}
		return true
	})
	t.trim()
}

// trim drops the lowest rows if there are too many and the request is for older events.
func (t *step) trim() {
	if n := len(t.rows) - t.most; t.down && n > 0 {
		t.rows = slices.Delete(t.rows, 0, n)
		t.next, t.stopped = place{t.rows[0].Seq, t.rows[0].Event}, true
	}
}

// event sends one event of a batch, or the whole batch of a raw stream. The query parameter first
// limits how many bytes are sent. The header field X-Size has the size of the whole event.
func (v *visit) event() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	at, err := parsePlace(v.r.PathValue("place"))
	if err != nil {
		return err
	}
	first := weir.MaxBody
	if text := v.query("first"); text != "" {
		if first, err = strconv.Atoi(text); err != nil || first < 0 {
			return weir.Errorf(weir.InvalidRequest, "not a number of bytes")
		}
	}
	loan := v.API.Lend(v.w, v.r)
	defer loan.End()
	var part []byte
	size := -1
	w := hub.Window{From: at.seq, Below: at.seq + 1, Limit: 1, Bytes: runBytes}
	_, err = hub.Browse(v.r.Context(), s, w, func(bytes int) error { return loan.Reserve(2 * bytes) }, func(b *weir.Batch) {
		eachEvent(s.Mode, b.Payload, func(i, from, to int) bool {
			if i == at.event {
				size = to - from
				part = slices.Clone(b.Payload[from : from+min(size, first)])
			}
			return i < at.event
		})
	})
	if err == nil && size < 0 {
		err = weir.Errorf(weir.StreamNotFound, "event %s is not stored: it was evicted, or never published", at)
	}
	if err != nil {
		return err
	}
	ending := "bin"
	if s.Mode == weir.JSON {
		ending = "json"
	}
	h := v.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(len(part)))
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%s.%s"`, fileName(s.Name()), at, ending))
	h.Set("X-Size", strconv.Itoa(size))
	v.w.WriteHeader(http.StatusOK)
	loan.Send(part)
	return nil
}

// fileName returns the letters, digits and hyphens of a name.
func fileName(name string) string {
	var b []byte
	for i := 0; i < len(name) && len(b) < maxFilename; i++ {
		if c := name[i]; c == '-' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
			b = append(b, c)
		}
	}
	return string(b)
}
