package budget

// Holder is the one that memory or a place counts against: a key within its project. For a caller
// without a key, Key is its address.
type Holder struct{ Project, Key string }

// shares counts what each key and project holds of one resource, and decides who may take more of
// it (D34):
//
//   - While more than a quarter is free, any key may.
//   - The last quarter is for keys that hold less than a fair share of what is taken, and not more
//     than what is left. The second condition makes each newcomer leave room for the next: without
//     it, two greedy keys would take everything.
//   - The last eighth is for the projects that hold less than a fair share. Without it, a project
//     with many keys could take everything, each key a little.
//
// It has no lock of its own.
type shares struct {
	total    int64
	free     int64
	held     int64 // by all keys; may exceed total-free by what holders got from elsewhere
	projects int64 // that hold something
	of       map[string]*project
}

type project struct {
	name string
	held int64
	some int64 // keys that hold something
	keys map[string]*key
}

type key struct {
	project *project
	name    string
	held    int64
	users   int // loans that refer to it
}

func newShares(total int64) shares {
	return shares{total: total, free: total, of: make(map[string]*project)}
}

// join returns the key of a holder. The caller must call leave when it does not need it any more.
func (s *shares) join(h Holder) *key {
	p := s.of[h.Project]
	if p == nil {
		p = &project{name: h.Project, keys: make(map[string]*key)}
		s.of[h.Project] = p
	}
	k := p.keys[h.Key]
	if k == nil {
		k = &key{project: p, name: h.Key}
		p.keys[h.Key] = k
	}
	k.users++
	return k
}

// leave forgets a key that nothing refers to. It must hold nothing by then.
func (s *shares) leave(k *key) {
	if k.users--; k.users > 0 {
		return
	}
	if delete(k.project.keys, k.name); len(k.project.keys) == 0 {
		delete(s.of, k.project.name)
	}
}

// add changes what a key holds by n, which may be negative. It does not change what is free.
func (s *shares) add(k *key, n int64) {
	k.project.some += change(k.held, n)
	s.projects += change(k.project.held, n)
	k.held += n
	k.project.held += n
	s.held += n
}

// change returns 1 if adding n begins a holding, -1 if it ends one, and otherwise 0.
func change(held, n int64) int64 {
	switch {
	case held == 0 && n > 0:
		return 1
	case held > 0 && held+n == 0:
		return -1
	}
	return 0
}

// allows reports whether a key may take n more.
func (s *shares) allows(k *key, n int64) bool {
	left := s.free - n
	switch {
	case left < 0:
		return false
	case left >= s.total/4:
		return true
	case !s.isLight(k) || k.held > s.free:
		return false
	case left >= s.total/8:
		return true
	}
	return k.project.held == 0 || k.project.held*s.projects < s.held
}

// isLight reports whether a key holds less than its fair share of what is taken: what its project
// would have if all had the same, divided by the keys of the project.
func (s *shares) isLight(k *key) bool {
	return k.held == 0 || k.held*k.project.some*s.projects < s.held
}
