package hub

import (
	"iter"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// anyGrace is the grace (the time for which a gap stays open) in checks and repairs. They do not
// close gaps, so any value will do.
const anyGrace = time.Second

// CheckStream reports whether a stream could be opened, given its document, the note of its last
// trim (a checkpoint of the stream's state) and the entries of its log. It needs no hub, so it can
// check a store that no server has open.
func CheckStream(d engine.Document, note []byte, entries iter.Seq[*engine.Header]) error {
	spec, created, err := readDocument(d)
	if err != nil {
		return err
	}
	_, err = stream.Restore(spec.bounds().rules(anyGrace), created, note, ruleHeaders(entries), created)
	return err
}

// SpecOf returns the settings in the document of a stream. Like CheckStream, it needs no hub.
func SpecOf(d engine.Document) (Spec, error) {
	spec, _, err := readDocument(d)
	return spec, err
}

// LowOf returns the low mark that the note of a log's last trim contains. All batches below the
// mark had already been evicted when the note was stored.
func LowOf(note []byte) (weir.Seq, error) { return stream.LowOf(note) }

// MendStream computes how to repair the log of a stream that lost some of its entries: a note for
// the last trim, and entries to add. See stream.Mend. Like CheckStream, it needs no hub.
func MendStream(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[*engine.Header], unknown int, now weir.Time) ([]byte, []engine.Header, error) {
	spec, created, err := readDocument(d)
	if err != nil {
		return nil, nil, err
	}
	note, lost, err := stream.Mend(spec.bounds().rules(anyGrace), created, low, note, ruleHeaders(entries), unknown, now)
	var add []engine.Header
	for _, h := range lost {
		add = append(add, engine.Header{Kind: engine.GapClosed, First: h.First, Seq: h.Seq, Time: h.Time, Flags: engine.Lost})
	}
	return note, add, err
}

// ruleHeaders converts headers of the engine to headers of package stream.
func ruleHeaders(entries iter.Seq[*engine.Header]) iter.Seq[*stream.Header] {
	return func(yield func(*stream.Header) bool) {
		var r stream.Header
		for h := range entries {
			if convert(&r, h); !yield(&r) {
				return
			}
		}
	}
}
