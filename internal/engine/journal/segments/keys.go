package segments

import (
	"encoding/binary"
	"sort"
	"sync"
)

// To open a log, the journal needs the digest of each idempotency key, the size of the key and the
// number of events in the batch. Reading these from the records of a million batches takes a third
// of a second. So a segment keeps these three values in a key slot for each batch with a key, in
// the order of its records. The key slots are in memory until the segment is full and sealed, and
// from then on in the file, before the index.

// KeyRoom is how much space an op must reserve for a key: a key slot, and an element of the
// directory in case the key slot begins a new block. (The directory lists the blocks of key slots.)
const KeyRoom = KeySlotSize + keyBlockSize

// keyList holds the encoded key slots of a segment that is not sealed. The committer adds slots.
// Its method all() returns the slots added so far.
type keyList struct {
	mu    sync.Mutex
	slots []byte
}

// add adds a key slot for a record if the record is a batch with a key.
func (k *keyList) add(off uint32, r *Record) {
	if r.Kind != KindBatch || r.Key == "" {
		return
	}
	k.mu.Lock()
	k.slots = appendKeySlot(k.slots, off, r)
	k.mu.Unlock()
}

func (k *keyList) clear() {
	k.mu.Lock()
	k.slots = nil // not reused, because readers may still hold the slice
	k.mu.Unlock()
}

func (k *keyList) all() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.slots
}

func (k *keyList) len() int { return len(k.all()) / KeySlotSize }

// KeyReader finds the key slots of records. It works on one segment at a time and keeps the
// directory of that segment.
type KeyReader struct {
	seg       *Segment
	directory []byte // directory of the key slots of seg; nil if seg is not sealed or its key slots cannot be read
	buf       []byte
}

// SlotsOf returns the key slots of the records in seg between the offsets lowest and highest,
// including both. The result may include slots of other records. SlotsOf returns nil if there are
// no key slots, or if they are damaged. For a sealed segment it also returns nil if they take more
// than limit bytes and more than one block. If the result is nil, the caller must read the records
// themselves.
func (k *KeyReader) SlotsOf(seg *Segment, lowest, highest uint32, limit int) []byte {
	if !seg.Sealed.Load() {
		if all := seg.keys.all(); all != nil || !seg.Sealed.Load() {
			return all
		}
	}
	if k.seg != seg {
		k.seg, k.directory = seg, seg.keyDirectory()
	}
	n := len(k.directory) / keyBlockSize
	block := func(off uint32) int { // index of the last block that begins at or before off
		return sort.Search(n, func(i int) bool { return binary.LittleEndian.Uint32(k.directory[i*keyBlockSize:]) > off }) - 1
	}
	first, last := max(block(lowest), 0), block(highest)
	if last < first || (last-first+1)*keyBlock*KeySlotSize > max(limit, keyBlock*KeySlotSize) {
		return nil
	}
	size := min((last+1)*keyBlock, seg.table.count)*KeySlotSize - first*keyBlock*KeySlotSize
	if cap(k.buf) < size {
		k.buf = make([]byte, size)
	}
	b := k.buf[:size]
	if seg.Read(b, seg.table.at+int64(first*keyBlock*KeySlotSize)) != nil {
		return nil
	}
	for i, rest := first, b; i <= last; i++ {
		part := rest[:min(len(rest), keyBlock*KeySlotSize)]
		if Sum(seg.Seed, part) != binary.LittleEndian.Uint32(k.directory[i*keyBlockSize+4:]) {
			return nil
		}
		rest = rest[len(part):]
	}
	return b
}

// keyDirectory reads the directory of the key slots of a sealed segment. It returns nil if there is
// no directory or the directory is damaged.
func (s *Segment) keyDirectory() []byte {
	if s.table.count == 0 {
		return nil
	}
	keys := int64(s.table.count) * KeySlotSize
	b := make([]byte, keySpace(s.table.count)-keys)
	if s.Read(b, s.table.at+keys) != nil || Sum(s.Seed, b) != s.table.sum {
		return nil
	}
	return b
}
