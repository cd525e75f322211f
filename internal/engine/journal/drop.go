package journal

import (
	"context"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// This file is for a journal whose index does not fit in memory. No server can start on such a
// journal, but its operator can find the largest logs and drop them. The functions here open the
// journal without its entries. That takes memory for the documents and for the index of one
// segment, however many entries there are.

// Size is a document and the size of its log.
type Size struct {
	Document engine.Document
	Batches  int   // a batch that was being copied when the journal was closed may count twice
	Bytes    int64 // total size of the payloads of these batches
}

// Sizes returns the documents of a journal that is not in use, in order of their keys, with the
// sizes of their logs. It returns the same errors as Open.
func Sizes(fs disk.FS) ([]Size, error) {
	j, err := openWithoutEntries(fs)
	if err != nil {
		return nil, err
	}
	defer j.closeAll()
	of := map[uint64]*Size{}
	for _, s := range j.store.allSegments() {
		slots := s.Slots
		if s.Sealed.Load() {
			if slots, err = s.Index(); err != nil {
				return nil, err
			}
		}
		for ; len(slots) > 0; slots = slots[segments.SlotSize:] {
			sl := segments.DecodeSlot(slots)
			l, owned := j.store.logs.Lookup(engine.LogID(sl.Log))
			if !owned || sl.Kind != segments.KindBatch || l != nil && sl.Seq < uint64(l.lastMark().low) {
				continue
			}
			if of[sl.Log] == nil {
				of[sl.Log] = &Size{}
			}
			of[sl.Log].Batches++
			of[sl.Log].Bytes += int64(sl.Size)
		}
	}
	var all []Size
	j.store.docs.Scan(func(_ string, d *index.Document) bool {
		size := Size{Document: d.Document}
		if held := of[uint64(d.Created)]; held != nil {
			size.Batches, size.Bytes = held.Batches, held.Bytes
		}
		all = append(all, size)
		return true
	})
	return all, nil
}

// Drop deletes a document of a journal that is not in use, and its log with all entries. The
// deletion is durable when Drop returns nil. A crash leaves the journal either with the document or
// without it. The next Open does not read the entries into memory, and frees their space. Drop
// returns engine.ErrNotFound if there is no such document, and otherwise the errors of Open and
// Delete.
func Drop(fs disk.FS, key string) error {
	j, err := openWithoutEntries(fs)
	if err != nil {
		return err
	}
	// The reclaimer is not started: it does not know the entries, so it would free every segment.
	j.serve()
	err = j.Delete(context.Background(), key, 0)
	if closed := j.Close(); err == nil {
		err = closed
	}
	return err
}

// openWithoutEntries recovers a journal like Open, but does not read the entries into memory and
// starts no goroutine.
func openWithoutEntries(fs disk.FS) (*Journal, error) {
	j := newJournal(fs, Options{})
	j.entriesLeftOut = true
	if err := j.recover(); err != nil {
		j.closeAll()
		return nil, err
	}
	return j, nil
}
