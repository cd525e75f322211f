package access

import "sync/atomic"

// Work sums up what the requests of a key did in some period of time.
type Work struct {
	Requests uint64
	Refused  uint64 // requests that were answered with a status of 400 or above
	Batches  uint64 // published batches, without duplicates
	Bytes    uint64 // bytes of request bodies
}

// work counts the Work of a key since the last call of Access.TakeWork.
type work struct {
	requests, refused, batches, bytes atomic.Uint64
}

// Count adds the work of requests that were answered.
func (g *Grant) Count(w Work) {
	g.work.requests.Add(w.Requests)
	if w.Refused > 0 {
		g.work.refused.Add(w.Refused)
	}
	if w.Batches > 0 {
		g.work.batches.Add(w.Batches)
	}
	if w.Bytes > 0 {
		g.work.bytes.Add(w.Bytes)
	}
}

// Work returns what the key did since the last call of Access.TakeWork.
func (g *Grant) Work() Work {
	w := &g.work
	return Work{w.requests.Load(), w.refused.Load(), w.batches.Load(), w.bytes.Load()}
}

// TakeWork calls visit for each key that did something since the last call of TakeWork, and begins
// to count from 0 again. The function visit must not call methods of a.
func (a *Access) TakeWork(visit func(id string, w Work)) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for id, e := range a.keys.All() {
		w := &e.grant.work
		if w.requests.Load() == 0 {
			continue
		}
		visit(id, Work{w.requests.Swap(0), w.refused.Swap(0), w.batches.Swap(0), w.bytes.Swap(0)})
	}
}
