package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// StreamOf is the stream that a document of the store describes; false when it is none of a stream's.
func StreamOf(key string) (weir.StreamID, bool) {
	id, ok := strings.CutPrefix(key, documents)
	return weir.StreamID(id), ok
}

// CheckStream says whether a stream could be opened, from its document and what its log holds. It needs no hub: it is for
// stores that nobody serves.
func CheckStream(d engine.Document, note []byte, entries iter.Seq[engine.Header]) error {
	r, created, err := stored(d)
	if err != nil {
		return err
	}
	_, err = stream.Restore(r, created, note, inRules(entries), created)
	return err
}

// MendStream says what a stream's log needs that lost some of its entries, see stream.Mend.
func MendStream(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int, now weir.Time) ([]byte, []engine.Header, error) {
	r, created, err := stored(d)
	if err != nil {
		return nil, nil, err
	}
	note, lost, err := stream.Mend(r, created, low, note, inRules(entries), unknown, now)
	var add []engine.Header
	for _, h := range lost {
		add = append(add, engine.Header{Kind: engine.GapClosed, First: h.First, Seq: h.Seq, Time: h.Time, Flags: engine.Lost})
	}
	return note, add, err
}

// stored reads a stream's document.
func stored(d engine.Document) (stream.Rules, weir.Time, error) {
	var v document
	if err := json.Unmarshal(d.Value, &v); err != nil {
		return stream.Rules{}, 0, fmt.Errorf("it is no stream: %w", err)
	}
	if v.Project == "" || v.Mode != weir.JSON && v.Mode != weir.Raw || v.MaxBytes <= 0 || v.RetentionSeconds <= 0 {
		return stream.Rules{}, 0, errors.New("it is no stream: something is missing")
	}
	r := stream.Rules{MaxBytes: v.MaxBytes, Retention: time.Duration(v.RetentionSeconds) * time.Second, GapGrace: time.Second}
	return r, weir.Time(v.CreatedAt), nil
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
