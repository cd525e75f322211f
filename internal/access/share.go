package access

import (
	"encoding/hex"
	"encoding/json"
	"time"
)

// Nodes that share a store tell each other what they counted, many times a second: so a caller who spreads requests over nodes
// is held to about the same limit as on one. What is under way between two nodes is not counted yet: that is the price of
// asking nobody before an answer.

// tally is what a node counted since it last told.
type tally struct {
	Keys      map[string]count `json:"keys,omitempty"` // by the key's id
	Demo      map[string]count `json:"demo,omitempty"` // by address
	Anonymous map[string]count `json:"anonymous,omitempty"`
}

// count is requests, and the second in which their window began.
type count struct {
	Begun int64 `json:"begun"`
	N     int   `json:"n"`
}

// tallied bounds how many callers are told of at once: the rest waits for the next time.
const tallied = 2000

// Share has requests of addresses remembered for Tally. Call it before the first request.
func (a *Access) Share() {
	a.windows.demoClients.share()
	a.windows.anonymousClients.share()
}

// Tally is what was counted here since the last call, for AddTally of other nodes; nil when that is nothing. It is not to be
// called by two at once.
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

// tallyKeys is what was counted of keys. All of them are looked at, for at most a hundredth of the time: of very many keys others
// hear a little later.
func (a *Access) tallyKeys() map[string]count {
	begun := a.now()
	if begun.Before(a.tallyNext) {
		return nil
	}
	all := map[string]count{}
	a.mu.RLock()
	for id, e := range a.keys {
		g := e.grant
		if n := g.taken.Load() - g.tallied; n > 0 && len(all) < tallied {
			g.tallied += n
			all[id] = count{int64(g.window.state.Load() >> countBits), int(min(n, countMask))}
		}
	}
	a.mu.RUnlock()
	end := a.now()
	a.tallyNext = end.Add(100 * end.Sub(begun))
	return all
}

// AddTally takes over what another node counted.
func (a *Access) AddTally(b []byte) {
	var t tally
	if json.Unmarshal(b, &t) != nil {
		return
	}
	for id, c := range t.Keys {
		if e := a.find(id); e != nil {
			e.grant.window.add(c, a.now)
		}
	}
	a.windows.demoClients.addAll(t.Demo, a.now)
	a.windows.anonymousClients.addAll(t.Anonymous, a.now)
}

// add counts what another node counted.
func (c *counter) add(o count, now func() time.Time) {
	for {
		old := c.state.Load()
		next := merge(old, o, now().Unix())
		if next == old || c.state.CompareAndSwap(old, next) {
			return
		}
	}
}

// merge is the state of a window after another node counted in it. Windows of one caller that overlap are one, from the
// earlier beginning on; what belongs to one that is over counts no more.
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

// share has requests remembered from now on.
func (c *clients) share() {
	for i := range c.shards {
		c.shards[i].fresh = map[place]int{}
	}
}

// tally is what was counted since the last call, by address.
func (c *clients) tally() map[string]count {
	var all map[string]count
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for p, n := range s.fresh {
			if len(all) >= tallied {
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

// addAll takes over what another node counted.
func (c *clients) addAll(counts map[string]count, now func() time.Time) {
	for name, o := range counts {
		b, err := hex.DecodeString(name)
		if err != nil || len(b) != len(place{}) {
			continue
		}
		p := place(b)
		s := c.shard(p)
		s.mu.Lock()
		at := now().Unix()
		s.age(at)
		s.keep(p, merge(s.state(p), o, at), at)
		s.mu.Unlock()
	}
}
