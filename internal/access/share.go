package access

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"weir/internal/shrink"
)

// Nodes that share a store report their request counts to each other, many times per second. So a
// caller that spreads its requests over several nodes gets about the same limit as on a single
// node. Counts that are in flight between two nodes are missing from the rate windows (a window
// counts the requests of 60 seconds), so a caller can exceed its limit a little. In return, no node
// has to ask another before it answers a request.

// tally is a report to other nodes: the requests that a node has counted since its last report.
type tally struct {
	Keys      map[string]count `json:"keys,omitempty"` // by the id of the key or token
	Demo      map[string]count `json:"demo,omitempty"` // by address
	Anonymous map[string]count `json:"anonymous,omitempty"`
}

// count is a number of requests in one window.
type count struct {
	Begun int64 `json:"begun"` // when the window began, in Unix seconds
	N     int   `json:"n"`     // requests
}

// maxTally limits the number of callers in each part of a report. The next report contains the
// rest.
const maxTally = 2000

// Share makes Access record how many requests each client address made, so that Tally can report
// them. The requests of keys are always recorded. Call Share before the first request.
func (a *Access) Share() {
	a.windows.demoClients.share()
	a.windows.anonymousClients.share()
}

// Tally returns a report of the requests that this node has counted since the last call. Other
// nodes pass it to AddTally. Tally returns nil if nothing was counted. It must not be called
// concurrently.
func (a *Access) Tally() []byte {
	t := tally{Keys: a.tallyKeys()}
	t.Demo = a.windows.demoClients.tally()
	t.Anonymous = a.windows.anonymousClients.tally()
	if len(t.Keys)+len(t.Demo)+len(t.Anonymous) == 0 {
		return nil
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil
	}
	return b
}

// tallyKeys returns the requests counted for keys. Visiting all keys takes time, so after a visit
// it returns nil for 100 times as long as the visit took. So the visits use at most 1 % of a CPU,
// but if there are very many keys, reports are less frequent.
func (a *Access) tallyKeys() map[string]count {
	begun := a.now()
	if begun.Before(a.tallyNext) {
		return nil
	}
	var all map[string]count
	a.mu.RLock()
	for _, callers := range []*shrink.Map[string, *entry]{&a.keys, &a.tokens} {
		for id, e := range callers.All() {
			g := e.grant
			if n := g.taken.Load() - g.tallied; n > 0 && len(all) < maxTally {
				g.tallied += n
				if all == nil {
					all = map[string]count{}
				}
				all[id] = count{int64(g.window.state.Load() >> countBits), int(min(n, countMask))}
			}
		}
	}
	a.mu.RUnlock()
	end := a.now()
	a.tallyNext = end.Add(100 * end.Sub(begun))
	return all
}

// AddTally adds the counts in another node's report to the windows of this node. It ignores a
// report that it cannot read.
func (a *Access) AddTally(b []byte) {
	var t tally
	if json.Unmarshal(b, &t) != nil {
		return
	}
	for id, c := range t.Keys {
		if e := a.caller(id); e != nil {
			e.grant.window.add(c, a.now)
		}
	}
	a.windows.demoClients.addAll(t.Demo, a.now)
	a.windows.anonymousClients.addAll(t.Anonymous, a.now)
}

// add adds another node's count to the window.
func (c *counter) add(o count, now func() time.Time) {
	for {
		old := c.state.Load()
		next := merge(old, o, now().Unix())
		if next == old || c.state.CompareAndSwap(old, next) {
			return
		}
	}
}

// merge returns the state of a window after adding another node's count. If the windows of the two
// nodes overlap, the result is one window that starts at the earlier of the two times. A count for
// a window that has ended is ignored.
func merge(state uint64, o count, now int64) uint64 {
	begun, n := int64(state>>countBits), int(state&countMask)
	if o.N <= 0 || now >= o.Begun+window || o.Begun > now+window {
		return state
	}
	if now >= begun+window || now <= begun-window {
		begun, n = o.Begun, 0
	}
	return uint64(min(begun, o.Begun))<<countBits | uint64(min(n+min(o.N, countMask), countMask))
}

// share starts recording requests for the method tally.
func (c *clients) share() {
	for i := range c.shards {
		c.shards[i].fresh = map[netKey]int{}
	}
}

// tally returns the requests counted since the last call, by address.
func (c *clients) tally() map[string]count {
	var all map[string]count
	if !c.counted.Swap(false) {
		return nil
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for p, n := range s.fresh {
			if len(all) >= maxTally {
				c.counted.Store(true) // the rest follows at the next call
				break
			}
			if all == nil {
				all = map[string]count{}
			}
			all[hex.EncodeToString(p[:])] = count{int64(s.state(p) >> countBits), n}
			delete(s.fresh, p)
		}
		s.mu.Unlock()
	}
	return all
}

// addAll adds the requests that another node counted, by address.
func (c *clients) addAll(counts map[string]count, now func() time.Time) {
	for name, o := range counts {
		b, err := hex.DecodeString(name)
		if err != nil || len(b) != len(netKey{}) {
			continue
		}
		p := netKey(b)
		s := c.shard(p)
		s.mu.Lock()
		at := now().Unix()
		s.age(at)
		s.keep(p, merge(s.state(p), o, at), at)
		s.mu.Unlock()
	}
}
