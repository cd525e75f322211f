package journal

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// Scrub is the progress of the background scrub, which reads and checks all sealed (full) segments
// at a bounded rate, so that damage is found while a backup still has the data.
type Scrub struct {
	Read        uint64    // bytes read since the journal was opened
	Done, Total int64     // bytes of the current pass; both are 0 between passes
	Finished    time.Time // end of the last complete pass; zero if there was none
	Findings    []Finding // damage in the current segments, as the last check of each segment found it
}

// Finding is damage to consecutive entries of one log, to one other record, or to a part of a
// segment that holds no record.
type Finding struct {
	File     string
	Offset   int64  // offset of the first damaged record or part
	What     string // batch, closed gap, mark (the record of a trim), document, deletion, or a part of the segment such as index
	Why      string
	Document string   // key of the document, or of the document that owns the log; may be empty
	From, To weir.Seq // first and last sequence, if the records are entries
	Records  int      // damaged records that are still needed; 0 means that nothing is lost
	log      engine.LogID
}

const (
	// scrubStep is the number of bytes that the scrub reads between pauses.
	scrubStep = 256 << 10
	// mostFindings bounds the findings of one segment.
	mostFindings = 1000
)

// scrubber is the goroutine that scrubs.
type scrubber struct {
	j        *Journal
	unpaced  int    // bytes read since the last pause
	appended uint64 // bytes appended to the journal until the last pause

	mu    sync.Mutex
	state Scrub
	found map[uint64][]Finding // by segment number
}

func (s *scrubber) init(j *Journal) { s.j, s.found = j, map[uint64][]Finding{} }

// run makes one pass after the other until the journal closes.
func (s *scrubber) run() {
	for s.pass() && pause(s.j.opts.ScrubEvery, s.j.halt) {
	}
}

// pass checks all segments that are sealed now. It returns false if the journal is closing.
func (s *scrubber) pass() bool {
	all := slices.DeleteFunc(s.j.store.allSegments(), func(seg *segment) bool { return !seg.Sealed.Load() })
	s.update(func(p *Scrub) { p.Done, p.Total = 0, int64(len(all))*s.j.dir.Size })
	for i, seg := range all {
		if seg = s.j.store.hold(uint32(seg.Number)); seg != nil && !s.check(seg) {
			return false
		}
		s.update(func(p *Scrub) { p.Done = int64(i+1) * s.j.dir.Size })
	}
	s.update(func(p *Scrub) { p.Done, p.Total, p.Finished = 0, 0, time.Now() })
	return true
}

// check reads a segment that the caller holds, and releases it. It copies the segment to the method
// Write, which discards the data: copying checks every group, record and index. check returns false
// if the journal is closing.
func (s *scrubber) check(seg *segment) bool {
	disk.Uncache(blocks.Stored(seg.File)) // read what the disk holds, not what the kernel remembers
	defer seg.release()
	var damages []error
	if err := seg.Copy(s, segments.Part{}, func(err error) { damages = append(damages, err) }); err != nil {
		return false
	}
	disk.Uncache(blocks.Stored(seg.File)) // leave the memory to data that is in use
	var findings []Finding
	if len(damages) > 0 {
		if findings = s.name(seg, damages); s.j.opts.Damaged != nil {
			s.j.opts.Damaged(findings)
		}
	}
	s.update(func(*Scrub) { s.found[seg.Number] = findings })
	return true
}

// Write paces the scrub: it sleeps so that the scrub reads at most ScrubRate bytes per second, and
// a quarter of that while more is appended than scrubbed. It returns engine.ErrClosed if the
// journal closes meanwhile.
func (s *scrubber) Write(b []byte) (int, error) {
	s.update(func(p *Scrub) { p.Read, p.Done = p.Read+uint64(len(b)), p.Done+int64(len(b)) })
	if s.unpaced += len(b); s.unpaced < scrubStep {
		return len(b), nil
	}
	wait := time.Duration(float64(s.unpaced) / float64(s.j.opts.ScrubRate) * float64(time.Second))
	now := s.j.counts.appended()
	if now-s.appended > uint64(s.unpaced) {
		wait *= 4
	}
	s.unpaced, s.appended = 0, now
	if !pause(wait, s.j.halt) {
		return 0, engine.ErrClosed
	}
	return len(b), nil
}

func (s *scrubber) update(change func(*Scrub)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// progress returns the current progress. It leaves out findings in segments that were freed.
func (s *scrubber) progress() Scrub {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.state
	for _, number := range slices.Sorted(maps.Keys(s.found)) {
		if s.j.store.segment(uint32(number)) == nil {
			delete(s.found, number)
		}
		p.Findings = append(p.Findings, s.found[number]...)
	}
	return p
}

// name returns the records of a segment that are damaged and still needed. If there are none, or if
// the index is not valid, it returns the damaged parts of the file.
func (s *scrubber) name(seg *segment, damages []error) (findings []Finding) {
	slots, err := seg.Index()
	runs := map[engine.LogID]int{} // for each log, the position of its newest finding in findings
	for ; len(slots) > 0 && len(findings) < mostFindings; slots = slots[segments.SlotSize:] {
		sl := segments.DecodeSlot(slots)
		_, err := s.j.reclaim.load(seg, sl)
		if err == nil || !s.j.store.needs(index.Place{Segment: uint32(seg.Number), Off: sl.Off}, sl) {
			continue
		}
		f := Finding{File: seg.Name, Offset: int64(sl.Off), What: sl.Kind.String(), Why: err.Error(), Records: 1, log: engine.LogID(sl.Log)}
		if sl.Kind.Entry() {
			f.From, f.To = weir.Seq(sl.Seq), weir.Seq(sl.Seq)
			if i, ok := runs[f.log]; ok && findings[i].What == f.What && findings[i].To+1 == f.From {
				findings[i].To, findings[i].Records = f.To, findings[i].Records+1
				continue
			}
			runs[f.log] = len(findings)
		}
		findings = append(findings, f)
	}
	s.j.store.nameDocuments(findings)
	if len(findings) > 0 {
		return findings
	}
	for _, d := range damages[:min(len(damages), mostFindings)] {
		f := Finding{File: seg.Name, What: "data", Why: d.Error()}
		if at, ok := errors.AsType[*DamageError](d); ok {
			f.Offset, f.What, f.Why = at.Offset, at.What, at.Err.Error()
		}
		if err != nil && (f.What == "record" || f.What == "group" || f.What == "data") {
			f.Records = 1 // or more: without the index it is not known which records were there
		}
		findings = append(findings, f)
	}
	return findings
}

// hold returns a segment that the caller must release, or nil if the journal no longer has it.
func (s *store) hold(number uint32) *segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	seg := s.segments[number]
	if seg != nil {
		seg.acquire()
	}
	return seg
}

// needs reports whether the state in memory refers to the record at this place. Unlike current(),
// it works without the key of the document.
func (s *store) needs(at index.Place, sl segments.Slot) (needed bool) {
	if sl.Kind != segments.KindDocument && sl.Kind != segments.KindDeleted {
		return s.current(at, &segments.Record{Kind: sl.Kind, Log: sl.Log, Seq: sl.Seq})
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.deleted.Scan(func(_ string, t *tombstone) bool {
		needed = t.at.Place == at
		return !needed
	})
	s.docs.Scan(func(_ string, d *index.Document) bool {
		needed = needed || d.At.Place == at
		return !needed
	})
	return needed
}

// nameDocuments sets the keys of the documents that own the logs of the findings.
func (s *store) nameDocuments(findings []Finding) {
	names := map[engine.LogID]string{}
	for _, f := range findings {
		names[f.log] = ""
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.docs.Scan(func(key string, d *index.Document) bool {
		if _, ok := names[d.Created]; ok {
			names[d.Created] = key
		}
		return true
	})
	for i := range findings {
		findings[i].Document = names[findings[i].log]
	}
}
