package faulty

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Loss says which unsynced changes a power cut loses.
type Loss uint8

// The patterns of loss. With each pattern, synced data survives, and writes that were pending at a
// failed SyncData are lost.
const (
	// LoseAll loses all unsynced changes.
	LoseAll Loss = iota
	// LoseNothing keeps all unsynced changes, as if they had just reached the disk.
	LoseNothing
	// LoseSome keeps or loses each sector of each write, and each truncation, independently of the
	// others. A write that extended the file may leave the new length without the data. Each crash
	// draws its own probability of keeping a sector, so a crash that loses one sector of many is as
	// common as a crash that keeps only one. The directory changes are kept in order, up to a
	// random one.
	LoseSome
	// Tear keeps the writes of all files in order, up to a random write that is cut at an arbitrary
	// byte. The directory changes are kept in order, up to a random one.
	Tear
)

// Losses lists all patterns.
var Losses = []Loss{LoseAll, LoseNothing, LoseSome, Tear}

func (l Loss) String() string { return [...]string{"LoseAll", "LoseNothing", "LoseSome", "Tear"}[l] }

// sector is the unit that a disk writes completely or not at all.
const sector = 512

// Crash returns the directory as it may be found after a power cut at this instant: unlocked, with
// all content durable, with the same capacity and without hooks. It does not change f. If f, loss
// and the state of rng are the same, the result is the same. LoseAll and LoseNothing do not use
// rng.
func (f *FS) Crash(loss Loss, rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()

	names := maps.Clone(f.durable)
	for _, c := range f.changes[:kept(len(f.changes), loss, rng)] {
		c.apply(names)
	}
	images := make(map[*inode]*inode, len(names))
	var pending []write
	after := New()
	after.capacity = f.capacity
	for name, in := range names {
		image := &inode{name: name, linked: true, durable: in.durable.clone()}
		images[in], after.names[name] = image, image
		pending = append(pending, in.pending...)
	}
	slices.SortFunc(pending, func(a, b write) int { return cmp.Compare(a.order, b.order) })

	switch loss {
	case LoseNothing:
		for _, w := range pending {
			w.apply(&images[w.file].durable)
		}
	case LoseSome:
		keep := rng.Float64()
		for _, w := range pending {
			w.scatter(&images[w.file].durable, keep, rng)
		}
	case Tear:
		last := rng.IntN(len(pending) + 1)
		for _, w := range pending[:last] {
			w.apply(&images[w.file].durable)
		}
		if last < len(pending) {
			w := pending[last]
			w.tear(&images[w.file].durable, rng)
		}
	}

	for _, in := range after.names {
		in.current = in.durable.clone()
		after.used += in.current.size
	}
	after.durable = maps.Clone(after.names)
	return after
}

// Kill returns the directory as the next process finds it after the current process was killed
// while the machine keeps running. It is unlocked and everything can be read, but unsynced changes
// are still unsynced, so a later power cut may lose them. Kill does not change f.
func (f *FS) Kill() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()

	images := map[*inode]*inode{nil: nil}
	image := func(in *inode) *inode {
		if im, ok := images[in]; ok {
			return im
		}
		im := &inode{name: in.name, linked: in.linked, current: in.current.clone(), durable: in.durable.clone()}
		for _, w := range in.pending {
			w.file = im
			im.pending = append(im.pending, w)
		}
		images[in] = im
		return im
	}
	after := New()
	after.capacity, after.used, after.writes = f.capacity, f.used, f.writes
	for name, in := range f.names {
		after.names[name] = image(in)
	}
	for name, in := range f.durable {
		after.durable[name] = image(in)
	}
	for _, c := range f.changes {
		after.changes = append(after.changes, change{c.from, c.to, image(c.file)})
	}
	return after
}

// kept returns how many of n directory changes survive a crash.
func kept(n int, loss Loss, rng *rand.Rand) int {
	switch loss {
	case LoseAll:
		return 0
	case LoseNothing:
		return n
	}
	return rng.IntN(n + 1)
}

// scatter applies each sector of a write with the probability keep.
func (w write) scatter(c *content, keep float64, rng *rand.Rand) {
	if w.cut {
		if rng.Float64() < keep {
			w.apply(c)
		}
		return
	}
	if end := w.off + int64(len(w.data)); end > c.size && rng.Float64() < keep/2 {
		c.truncate(end)
	}
	off := w.off
	for data := w.data; len(data) > 0; {
		n := min(int64(len(data)), sector-off%sector)
		if rng.Float64() < keep {
			c.write(data[:n], off)
		}
		data, off = data[n:], off+n
	}
}

// tear applies a prefix of a write. It applies a truncation wholly or not at all.
func (w write) tear(c *content, rng *rand.Rand) {
	if w.cut {
		if rng.IntN(2) == 0 {
			w.apply(c)
		}
		return
	}
	if n := rng.IntN(len(w.data) + 1); n > 0 {
		c.write(w.data[:n], w.off)
	}
}
