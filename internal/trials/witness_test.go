package trials

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"weir/internal/contract"
)

// witness records the operations of clients on one stream with their times. The record must be
// linearizable: a single copy of the stream could have given the same responses.
type witness struct {
	k     *chaos
	id    string
	begun time.Time
	quit  chan struct{}
	work  sync.WaitGroup

	mu     sync.Mutex
	ops    []porcupine.Operation
	values map[int64]string
	newest int64
}

// request and response describe one operation. The response to a publish is the sequence of the new
// batch, the response to a cursor request is the highest sequence, and the response to a read tells
// whether the batch exists.
type request struct {
	what string
	seq  int64
}

type response struct {
	seq   int64
	found bool
}

// pace is the time between two operations of a client. The resulting history of thousands of
// operations is long enough to find faults and short enough to check quickly.
const pace = 15 * time.Millisecond

// newWitness creates a stream and starts clients that use it.
func newWitness(k *chaos, clients int) *witness {
	h := &witness{k: k, id: contract.NewID(), begun: time.Now(), quit: make(chan struct{}), values: map[int64]string{}}
	if out, status, b := k.on(0).ask(context.Background(), "POST", "/v1/streams", `{"name":"history","id":"`+h.id+`"}`, nil); out != done {
		k.t.Fatalf("create: %d %s", status, b)
	}
	for i := range clients {
		r := rand.New(rand.NewPCG(k.r.Uint64(), uint64(i)))
		h.work.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-h.quit:
					return
				case <-tick.C:
				}
				switch r.IntN(3) {
				case 0:
					h.publish(i, n, r.IntN(3))
				case 1:
					h.cursor(i, r.IntN(3))
				default:
					h.read(i, r)
				}
			}
		})
	}
	return h
}

// since returns the time since the start of the history.
func (h *witness) since() int64 { return int64(time.Since(h.begun)) }

// add records an operation that ends at this moment.
func (h *witness) add(client int, call int64, a request, o response) {
	end := h.since()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: a, Call: call, Output: o, Return: end})
	h.newest = max(h.newest, o.seq)
}

// publish sends a batch until it is acknowledged. The idempotency key of the batch ensures that it
// is stored once.
func (h *witness) publish(client, n, node int) {
	call := h.since()
	body := fmt.Sprintf(`["%d of %d"]`, n, client)
	for ; ; node++ {
		ctx, cancel := context.WithTimeout(context.Background(), answered)
		out, status, ack := h.k.on(node).publish(ctx, contract.NextPath(h.id), fmt.Sprintf("%d-%d", client, n), body)
		cancel()
		switch out {
		case refused:
			h.k.t.Errorf("publish: refused with %d", status)
			return
		case done:
			h.add(client, call, request{what: "publish"}, response{seq: ack.Seq})
			h.mu.Lock()
			if other, twice := h.values[ack.Seq]; twice {
				h.k.t.Errorf("sequence %d was acknowledged for two batches: %s and %s", ack.Seq, other, body)
			}
			h.values[ack.Seq] = body
			h.mu.Unlock()
			return
		}
		h.k.breathe()
	}
}

// get sends a GET request. The callers ignore an unknown outcome, since a read changes nothing.
func (h *witness) get(node int, path string) (outcome, int, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), answered)
	defer cancel()
	return h.k.on(node).ask(ctx, "GET", "/v1/streams/"+h.id+path, "", http.Header{})
}

// cursor reads the cursor.
func (h *witness) cursor(client, node int) {
	call := h.since()
	out, status, b := h.get(node, "/cursor")
	var c struct{ Cursor int64 }
	if out == done && json.Unmarshal(b, &c) == nil {
		h.add(client, call, request{what: "cursor"}, response{seq: c.Cursor})
	} else if out == refused {
		h.k.t.Errorf("cursor: %d %s", status, b)
	}
}

// read reads one of the latest known batches or one of the two sequences after them, which other
// clients may have published meanwhile.
func (h *witness) read(client int, r *rand.Rand) {
	h.mu.Lock()
	seq := max(1, h.newest+2-int64(r.IntN(4)))
	h.mu.Unlock()
	call := h.since()
	out, status, b := h.get(r.IntN(3), fmt.Sprint("/batches/", seq))
	switch {
	case out == done:
		var got contract.Batch
		if err := json.Unmarshal(b, &got); err != nil {
			h.k.t.Error(err)
		}
		h.add(client, call, request{"read", seq}, response{found: true})
	case out == refused && status == 404:
		h.add(client, call, request{"read", seq}, response{})
	case out == refused:
		h.k.t.Errorf("read: %d %s", status, b)
	}
}

// single is the model of a single copy of the stream. Its state is the number of batches.
var single = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		n, a, o := state.(int64), input.(request), output.(response)
		switch a.what {
		case "publish":
			return o.seq == n+1, n + 1
		case "cursor":
			return o.seq == n, n
		}
		return o.found == (a.seq <= n), n
	},
	DescribeOperation: func(input, output any) string {
		a, o := input.(request), output.(response)
		return fmt.Sprintf("%s %d: %d %v", a.what, a.seq, o.seq, o.found)
	},
}

// check stops the clients and checks the history against the model. A check that times out counts
// as a failure.
func (h *witness) check() {
	h.k.t.Helper()
	close(h.quit)
	h.work.Wait()
	verdict, info := porcupine.CheckOperationsVerbose(single, h.ops, 2*time.Minute)
	h.k.t.Logf("%d operations on one stream: %s", len(h.ops), verdict)
	if verdict != porcupine.Ok {
		path := h.k.t.Name() + ".html"
		err := porcupine.VisualizePath(single, info, path)
		h.k.t.Errorf("the history is not linearizable: %s (%v)", path, err)
	}
	log, _ := h.k.on(0).readAllOf(h.k.t, h.id)
	for _, b := range log {
		if h.values[b.seq] != b.events {
			h.k.t.Errorf("batch %d holds %s, but %s was acknowledged", b.seq, b.events, h.values[b.seq])
		}
	}
}
