package hub

import (
	"iter"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// anyGrace is the gap grace of a stream that is checked or repaired. No gap is closed there, so any
// value will do.
const anyGrace = time.Second

// CheckStream says whether a stream could be opened, from its document and what its log holds. It needs no hub: it is for
// stores that nobody serves.
func CheckStream(d engine.Document, note []byte, entries iter.Seq[engine.Header]) error {
	spec, created, err := readDocument(d)
	if err != nil {
		return err
	}
	_, err = stream.Restore(spec.rules(anyGrace), created, note, inRules(entries), created)
	return err
}

// MendStream says what a stream's log needs that lost some of its entries, see stream.Mend.
func MendStream(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int, now weir.Time) ([]byte, []engine.Header, error) {
	spec, created, err := readDocument(d)
	if err != nil {
		return nil, nil, err
	}
	note, lost, err := stream.Mend(spec.rules(anyGrace), created, low, note, inRules(entries), unknown, now)
	var add []engine.Header
	for _, h := range lost {
		add = append(add, engine.Header{Kind: engine.GapClosed, First: h.First, Seq: h.Seq, Time: h.Time, Flags: engine.Lost})
	}
	return note, add, err
}

func inRules(entries iter.Seq[engine.Header]) iter.Seq[stream.Header] {
	return func(yield func(stream.Header) bool) {
		for h := range entries {
			if !yield(rules(h)) {
				return
			}
		}
	}
}
