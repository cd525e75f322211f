package stream

// queue holds idempotency keys in the order of their batches. Keys are added at the end and removed
// at the front; only cut removes keys at the end. The queue consists of pieces. So a queue of a
// million keys is never copied when it grows, and its memory is freed piece by piece as keys are
// removed.
//
// Each key has a position, which is one above the position of the key before it, modulo 2^32. The
// position stays the same when other keys are removed.
type queue struct {
	pieces [][]key // each has pieceKeys keys, except the last, which may have fewer
	first  int     // number of keys of the first piece that were removed
	base   uint32  // position of the first key of the first piece, removed or not
}

const (
	pieceBits = 10
	pieceKeys = 1 << pieceBits
)

func (q *queue) len() int {
	n := len(q.pieces)
	if n == 0 {
		return 0
	}
	return (n-1)<<pieceBits + len(q.pieces[n-1]) - q.first
}

// start returns the position of the first key.
func (q *queue) start() uint32 { return q.base + uint32(q.first) }

// at returns the key at a position.
func (q *queue) at(pos uint32) *key {
	i := pos - q.base
	return &q.pieces[i>>pieceBits][i&(pieceKeys-1)]
}

// index returns the i-th key of the queue, counted from 0.
func (q *queue) index(i int) *key {
	i += q.first
	return &q.pieces[i>>pieceBits][i&(pieceKeys-1)]
}

// search returns the newest of the first n keys that has the digest d, or nil.
func (q *queue) search(d digest, n int) *key {
	for end := q.first + n; end > q.first; {
		piece := (end - 1) >> pieceBits
		from := max(piece<<pieceBits, q.first)
		keys := q.pieces[piece][from&(pieceKeys-1) : (end-1)&(pieceKeys-1)+1]
		for i := len(keys) - 1; i >= 0; i-- {
			if keys[i].digest == d {
				return &keys[i]
			}
		}
		end = from
	}
	return nil
}

// push adds a key at the end and returns its position.
func (q *queue) push(k key) uint32 {
	switch n := len(q.pieces); {
	case n == 0:
		q.pieces = [][]key{nil}
		q.renew()
	case n == 1 && len(q.pieces[0]) == cap(q.pieces[0]) && (q.len() <= pieceKeys/2 || len(q.pieces[0]) < pieceKeys):
		q.renew()
	case len(q.pieces[n-1]) == pieceKeys:
		q.pieces = append(q.pieces, make([]key, 0, pieceKeys))
	}
	n := len(q.pieces)
	last := &q.pieces[n-1]
	*last = append(*last, k)
	return q.base + uint32((n-1)<<pieceBits+len(*last)-1)
}

// renew replaces the only piece by a piece that holds the remaining keys and has room for as many
// more. So a stream with few keys takes little memory, however many keys were removed.
func (q *queue) renew() {
	live := q.pieces[0][q.first:]
	q.pieces[0] = append(make([]key, 0, min(max(2*len(live), 4), pieceKeys)), live...)
	q.base, q.first = q.start(), 0
}

// pop removes the first n keys.
func (q *queue) pop(n int) {
	if n == q.len() {
		*q = queue{base: q.start() + uint32(n)}
		return
	}
	for q.first += n; q.first >= pieceKeys; q.first -= pieceKeys {
		q.pieces[0] = nil
		q.pieces = q.pieces[1:]
		q.base += pieceKeys
	}
}

// cut removes the last n keys.
func (q *queue) cut(n int) {
	if n == q.len() {
		*q = queue{base: q.start()}
		return
	}
	for n > 0 {
		last := &q.pieces[len(q.pieces)-1]
		gone := min(n, len(*last))
		*last = (*last)[:len(*last)-gone]
		if n -= gone; len(*last) == 0 {
			q.pieces = q.pieces[:len(q.pieces)-1]
		}
	}
}

// head returns a queue of the first n keys. The result may be read while q changes, because a key
// in memory is neither changed nor moved. But these keys must not be removed by cut, because a
// later push would overwrite them.
func (q *queue) head(n int) queue {
	out := queue{first: q.first, base: q.base}
	for left := n + q.first; left > 0 && n > 0; left -= pieceKeys {
		piece := q.pieces[len(out.pieces)]
		out.pieces = append(out.pieces, piece[:min(left, len(piece))])
	}
	return out
}

// capacity returns the number of keys that the queue has memory for.
func (q *queue) capacity() int {
	n := 0
	for _, p := range q.pieces {
		n += cap(p)
	}
	return n
}
