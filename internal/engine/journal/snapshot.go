package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// Snapshot is the content of the journal at one point in time, as a list of files. These files can
// be copied while the journal continues to run: sealed segments, which are full and have an index,
// never change, and only the synced part of the active segment is included. The journal does not
// recycle a file of a snapshot until the file was copied or the snapshot is closed. No operation of
// the journal waits for a snapshot. A Snapshot must not be used by several goroutines at once.
type Snapshot struct {
	Format  string // content of the file "format"
	j       *Journal
	parts   []heldPart
	damages []error
	offline bool
}

// heldPart is one segment of a snapshot.
type heldPart struct {
	segments.Part
	seg  *segment
	held bool // the segment is not released yet
}

// SnapshotFile is one file of a snapshot.
type SnapshotFile struct {
	Name string
	Size int64 // bytes that Copy writes; the rest of the active segment is zeros and is not copied
	// Seal identifies the content of a sealed segment, which never changes. It is the footer with
	// its checksums, in hexadecimal. It is empty for other files.
	Seal string
}

// Snapshot takes a snapshot, which contains everything that was durable before the call. Snapshot
// also works if the journal became read-only after a failed write. The caller must close the
// snapshot.
func (j *Journal) Snapshot(ctx context.Context) (*Snapshot, error) {
	o := &snapshotOp{j: j, done: make(chan error, 1)}
	j.do(o)
	select {
	case err := <-o.done:
		return o.snap, err
	case <-ctx.Done():
		go func() { // the committer still holds the op: release the files of the snapshot when the op is done
			if <-o.done == nil {
				o.snap.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// OpenSnapshot takes a snapshot of a journal that no server has open, even if the journal is too
// damaged to be opened. The lock is held until the snapshot is closed. OpenSnapshot writes no more
// than Open does.
func OpenSnapshot(fs disk.FS) (*Snapshot, error) {
	j := newJournal(fs, Options{})
	names, err := j.dir.List()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, directory.FormatFile) && !disk.Installing(names) {
		return nil, fmt.Errorf("%w: file %s is missing", ErrForeign, directory.FormatFile)
	}
	if err := j.recover(); err != nil {
		j.closeAll()
		if directory.Unusable(err) {
			return damagedSnapshot(fs, err)
		}
		return nil, err
	}
	s := j.write.snapshot()
	s.offline = true
	return s, nil
}

// damagedSnapshot takes all segment files as they are.
func damagedSnapshot(fs disk.FS, why error) (*Snapshot, error) {
	j := newJournal(fs, Options{})
	_, err := j.dir.TakeDamaged()
	if err == nil {
		_, err = j.dir.OpenSegments(func(number uint64) *segments.Segment {
			s := j.newSegment(number)
			j.store.addSegment(s)
			return &s.Segment
		})
	}
	if err != nil {
		j.closeAll()
		if err.Error() == why.Error() { // for example if the format file is damaged
			return nil, why
		}
		return nil, errors.Join(why, err)
	}
	s := &Snapshot{j: j, Format: j.dir.FormatText(), offline: true, damages: []error{why}}
	for _, seg := range j.store.allSegments() {
		seg.acquire()
		s.parts = append(s.parts, heldPart{Part: segments.Part{Raw: true}, seg: seg, held: true})
	}
	return s, nil
}

// snapshotOp takes a snapshot once all ops before it in the queue are durable.
type snapshotOp struct {
	j    *Journal
	snap *Snapshot
	done chan error
}

func (o *snapshotOp) bound() (int, int) { return 0, 0 }
func (o *snapshotOp) class() class      { return freeing }
func (o *snapshotOp) stage(*group)      {}
func (o *snapshotOp) settle(*group)     { o.snap = o.j.write.snapshot() }

// finish takes the snapshot itself if the journal is read-only, because everything synced before
// the failure can still be copied. In that case finish runs in the writer's goroutine, so the
// segments cannot change.
func (o *snapshotOp) finish(err error) {
	if errors.Is(err, engine.ErrReadOnly) {
		o.snap, err = o.j.write.snapshot(), nil
	}
	o.done <- err
}

// snapshot holds all segments in their current state. It runs in the writer's goroutine, because
// only the writer frees segments. A segment that the committer has started but that has no durable
// group is left out.
func (w *writer) snapshot() *Snapshot {
	s := &Snapshot{j: w.j, Format: w.j.dir.FormatText()}
	for _, seg := range w.j.store.allSegments() {
		p := heldPart{seg: seg, held: true}
		switch {
		case seg.Sealed.Load():
		case seg == w.active:
			p.End, p.Next = w.synced, w.next
		case w.active != nil && seg.Number < w.active.Number: // full, and being sealed
			p.End, p.Next = seg.End, seg.next|segments.FinalMark
		default:
			continue
		}
		seg.acquire()
		s.parts = append(s.parts, p)
	}
	return s
}

// Files returns the files of the snapshot, in order.
func (s *Snapshot) Files() []SnapshotFile {
	files := []SnapshotFile{{Name: directory.FormatFile, Size: int64(len(s.Format))}}
	for _, p := range s.parts {
		f := SnapshotFile{Name: p.seg.Name, Size: p.seg.Stored()}
		if p.End > 0 {
			f.Size = p.End
		} else {
			f.Seal = p.seg.Identity()
		}
		files = append(files, f)
	}
	return files
}

// Copy writes file i of Files to w and then releases the file. It checks every record while it
// copies. Copy writes damaged data unchanged, and zeros in place of unreadable data. Damages
// reports both. Copy returns the error of w, or engine.ErrClosed.
func (s *Snapshot) Copy(w io.Writer, i int) error {
	if i == 0 {
		_, err := io.WriteString(w, s.Format)
		return err
	}
	p := &s.parts[i-1]
	defer s.release(p)
	return p.seg.Copy(w, p.Part, func(err error) {
		if len(s.damages) == 0 || s.damages[0].Error() != err.Error() { // the first may be why the journal cannot be opened
			s.damages = append(s.damages, err)
		}
	})
}

// Skip releases file i of Files without copying it.
func (s *Snapshot) Skip(i int) {
	if i > 0 {
		s.release(&s.parts[i-1])
	}
}

// Damages returns the damage found in the files copied so far.
func (s *Snapshot) Damages() []error { return s.damages }

func (s *Snapshot) release(p *heldPart) {
	if p.held {
		p.held = false
		p.seg.release()
	}
}

// Close releases the files that were not copied.
func (s *Snapshot) Close() {
	for i := range s.parts {
		s.release(&s.parts[i])
	}
	if s.offline {
		s.offline = false
		s.j.closeAll()
	}
}
