package budget

// Holder names the key and the project that memory or a place counts against. For a caller without
// a key, Key is the caller's address.
type Holder struct{ Project, Key string }

// shares counts how much of one resource each key and each project holds. It decides which key may
// take more (D34):
//
//   - While more than a quarter of the resource is free, any key may take more.
//   - In the last quarter, a key may take more only if it holds less than its fair share (see
//     isLight), and if it holds no more than is still free. The second condition makes each
//     newcomer leave room for the next one. Without it, two greedy keys would take everything.
//   - In the last eighth, the project of the key must also hold less than its fair share. Without
//     this rule, a project with many keys could take everything, each key a little.
//
// shares has no lock of its own. Its user must guard it.
type shares struct {
	total    int64
	free     int64
	held     int64 // amount that all keys hold, including memory from the reserve, which total and free do not count
	projects int64 // number of projects that hold something
	of       map[string]*project
}

type project struct {
	name string
	held int64
	some int64 // number of keys that hold something
	keys map[string]*key
}

type key struct {
	project *project
	name    string
	held    int64
	users   int // calls of join that were not followed by leave yet
}

func newShares(total int64) shares {
	return shares{total: total, free: total, of: make(map[string]*project)}
}

// join returns the key of a holder. The caller must call leave when it does not need the key any
// more.
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

// leave ends a use that join began. After its last use, a key is forgotten. By then the key must
// hold nothing.
func (s *shares) leave(k *key) {
	if k.users--; k.users > 0 {
		return
	}
	if delete(k.project.keys, k.name); len(k.project.keys) == 0 {
		delete(s.of, k.project.name)
	}
}

// add adds n, which may be negative, to the amount that a key holds. It does not change the free
// amount.
func (s *shares) add(k *key, n int64) {
	k.project.some += change(k.held, n)
	s.projects += change(k.project.held, n)
	k.held += n
	k.project.held += n
	s.held += n
}

// change returns by how much the number of holders changes when n is added to the amount held: 1 if
// held was 0 before, -1 if it is 0 afterwards, and otherwise 0.
func change(held, n int64) int64 {
	switch {
	case held == 0 && n > 0:
		return 1
	case held > 0 && held+n == 0:
		return -1
	}
	return 0
}

// allows reports whether a key may take n more, by the rule of shares.
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

// isLight reports whether a key holds less than its fair share. To find the fair share, divide the
// amount that all keys hold equally between the projects that hold something. Then divide the part
// of this project equally between its keys that hold something.
func (s *shares) isLight(k *key) bool {
	return k.held == 0 || k.held*k.project.some*s.projects < s.held
}
