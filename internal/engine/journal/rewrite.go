package journal

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// add appends a record to the segments that the repair writes.
func (p *repair) add(r *record) error {
	r.length = uint32(len(r.payload))
	room := int64(2 * (frameSize + padded(recordSize+8*(len(p.listed)+len(p.added)+2)) + slotSize))
	if p.seg == nil || !p.seg.fits(p.j.size, r.size(), 1, room) {
		if err := p.rotate(); err != nil {
			return err
		}
	}
	p.group.add(r)
	if p.group.length >= copyStep || len(r.payload) >= largePayload { // a group only refers to large payloads, so it is written at once
		return p.flush()
	}
	return nil
}

// rotate begins a new segment. The first manifest in it is a draft, which still lists the damaged
// segments.
func (p *repair) rotate() error {
	if p.seg != nil {
		if err := p.flush(); err != nil {
			return err
		}
		if err := p.seg.seal(p.j.size, p.next, once); err != nil {
			return err
		}
	}
	number := p.j.end.latest.segment + 1
	if n := len(p.numbers); n > 0 {
		number = max(number, p.numbers[n-1]+1)
	}
	s := &segment{number: number, name: segmentName(number), seed: seed(p.j.salt, number)}
	if err := p.j.prepare.create(s); err != nil {
		return err
	}
	if err := p.j.fs.SyncDir(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	s.end = dataStart
	p.segments[number] = s
	p.numbers, p.added = append(p.numbers, number), append(p.added, number)
	p.seg, p.group = s, &group{j: p.j}
	p.group.begin(s)
	p.manifest(slices.Concat(p.listed, p.added), draftManifest)
	return nil
}

// draftManifest is the count field of a draft: a manifest that lists damaged or missing segments
// until the repair is complete.
const draftManifest = 1

func (p *repair) manifest(numbers []uint64, count uint32) {
	var payload []byte
	for _, n := range numbers {
		payload = binary.LittleEndian.AppendUint64(payload, n)
	}
	p.group.add(&record{kind: kindManifest, seq: p.j.commit.next, count: count, payload: payload, payloadSum: sum(0, payload)})
}

// flush makes the current group durable.
func (p *repair) flush() error {
	if p.group.records == 0 {
		return nil
	}
	if err := p.seg.file.WriteAt(p.group.off, p.group.buffers(p.next)...); err != nil {
		return fmt.Errorf("write %s: %w", p.seg.name, err)
	}
	if err := p.seg.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", p.seg.name, err)
	}
	p.next++
	p.group.begin(p.seg)
	return nil
}
