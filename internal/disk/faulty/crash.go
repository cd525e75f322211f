package faulty

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Loss says what a power cut takes of what was not synced.
type Loss uint8

// The patterns of loss. What was synced stays in all of them, and what a failed SyncData dropped is gone in all.
const (
	// LoseAll takes everything.
	LoseAll Loss = iota
	// LoseNothing takes nothing: all of it had just reached the disk.
	LoseNothing
	// LoseSome takes or leaves each sector of each write on its own, and each truncation; a write that made the file
	// longer may leave the length without the data. How likely a loss is, is drawn for each crash, so that a single
	// lost sector among many is as common as the opposite. Of the directory's changes it leaves a beginning.
	LoseSome
	// Tear leaves the writes of all files in their order up to one that is cut at any byte. Of the directory's changes
	// it leaves a beginning.
	Tear
)

// Losses are all patterns.
var Losses = []Loss{LoseAll, LoseNothing, LoseSome, Tear}

func (l Loss) String() string { return [...]string{"LoseAll", "LoseNothing", "LoseSome", "Tear"}[l] }

// sector is what a disk writes wholly or not at all.
const sector = 512

// Crash returns the directory as it may be found after a power cut at this instant: unlocked, everything in it durable,
// with the same capacity and without hooks. Nothing changes in f. The same f, loss and state of rng give the same.
// LoseAll and LoseNothing do not use rng.
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

// Kill returns the directory as the next process finds it after the one that used it was killed, on a machine that goes
// on: unlocked, everything can be read, and what was not synced is still not synced, so that a power cut may yet take
// it. Nothing changes in f.
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
			w.file, w.data = im, slices.Clone(w.data)
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

// kept is how many of n changes of the directory a crash leaves.
func kept(n int, loss Loss, rng *rand.Rand) int {
	switch loss {
	case LoseAll:
		return 0
	case LoseNothing:
		return n
	}
	return rng.IntN(n + 1)
}

// scatter applies each sector of a write with probability keep.
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

// tear applies a beginning of a write. A truncation happens or does not.
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
