package datadir

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// StreamSize is a stream in a data directory and how much it keeps.
type StreamSize struct {
	ID      weir.StreamID  `json:"id"`
	Project weir.ProjectID `json:"project"` // empty if the document of the stream cannot be read
	Name    string         `json:"name"`
	Batches int            `json:"batches"` // a batch that the journal was copying to another file may count twice
	Bytes   int64          `json:"bytes"`
}

// Streams returns the streams of a data directory that no server is using, the one with the most
// batches first. It needs little memory, however many batches there are.
func Streams(data string) ([]StreamSize, error) {
	if err := requireJournal(data); err != nil {
		return nil, err
	}
	sizes, err := journal.Sizes(disk.OS(Journal(data)))
	if err != nil {
		return nil, explain("read", data, err)
	}
	all := []StreamSize{}
	for _, s := range sizes {
		if id, ok := hub.StreamOf(s.Document.Key); ok {
			spec, _ := hub.SpecOf(s.Document)
			all = append(all, StreamSize{ID: id, Project: spec.Project, Name: spec.Name, Batches: s.Batches, Bytes: s.Bytes})
		}
	}
	slices.SortStableFunc(all, func(a, b StreamSize) int { return cmp.Compare(b.Batches, a.Batches) })
	return all, nil
}

// DropStream deletes a stream from a data directory that no server is using. When DropStream
// returns nil, the deletion is durable. Like Streams, it needs little memory.
func DropStream(data string, id weir.StreamID) error {
	if err := requireJournal(data); err != nil {
		return err
	}
	err := journal.Drop(disk.OS(Journal(data)), hub.DocumentKind+"/"+string(id))
	if errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("no stream %s in %s", id, data)
	}
	if err != nil {
		return explain("drop a stream from", data, err)
	}
	return nil
}
