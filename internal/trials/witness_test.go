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

// witness is what clients did with one stream and were told, with the times: it must be what a single copy would have told.
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

// asked and told are one operation. A publish takes the next sequence; a cursor is where the stream is; a read tells whether
// there is a batch.
type asked struct {
	what string
	seq  int64
}

type told struct {
	seq   int64
	found bool
}

// pace is how often each client does something: a history of thousands of operations is looked at in no time, and tells enough.
const pace = 15 * time.Millisecond

// newWitness begins to use a stream.
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

// since is the time of the history.
func (h *witness) since() int64 { return int64(time.Since(h.begun)) }

func (h *witness) add(client int, call int64, a asked, o told) {
	end := h.since()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: a, Call: call, Output: o, Return: end})
	h.newest = max(h.newest, o.seq)
}

// publish goes on until it is acknowledged: its key sees to it that it happens once.
func (h *witness) publish(client, n, node int) {
	call := h.since()
	body := fmt.Sprintf(`["%d of %d"]`, n, client)
	for ; ; node++ {
		ctx, cancel := context.WithTimeout(context.Background(), answered)
		out, status, ack := h.k.on(node).publish(ctx, contract.NextPath(h.id), fmt.Sprintf("%d-%d", client, n), body)
		cancel()
		switch out {
		case refused:
			h.k.t.Errorf("publish: %d", status)
			return
		case done:
			h.add(client, call, asked{what: "publish"}, told{seq: ack.Seq})
			h.mu.Lock()
			if other, twice := h.values[ack.Seq]; twice {
				h.k.t.Errorf("%d was acknowledged for %s and for %s", ack.Seq, other, body)
			}
			h.values[ack.Seq] = body
			h.mu.Unlock()
			return
		}
		h.k.breathe()
	}
}

// get reads, and tells nothing when there is no answer: a read that nobody heard of changes nothing.
func (h *witness) get(node int, path string) (outcome, int, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), answered)
	defer cancel()
	return h.k.on(node).ask(ctx, "GET", "/v1/streams/"+h.id+path, "", http.Header{})
}

func (h *witness) cursor(client, node int) {
	call := h.since()
	out, status, b := h.get(node, "/cursor")
	var c struct{ Cursor int64 }
	if out == done && json.Unmarshal(b, &c) == nil {
		h.add(client, call, asked{what: "cursor"}, told{seq: c.Cursor})
	} else if out == refused {
		h.k.t.Errorf("cursor: %d %s", status, b)
	}
}

// read asks for a batch that is there, or for the next one or two that may be there just now.
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
		h.add(client, call, asked{"read", seq}, told{found: true})
	case out == refused && status == 404:
		h.add(client, call, asked{"read", seq}, told{})
	case out == refused:
		h.k.t.Errorf("read: %d %s", status, b)
	}
}

// single is one copy of the stream: all that matters of it is how many batches it has.
var single = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		n, a, o := state.(int64), input.(asked), output.(told)
		switch a.what {
		case "publish":
			return o.seq == n+1, n + 1
		case "cursor":
			return o.seq == n, n
		}
		return o.found == (a.seq <= n), n
	},
	DescribeOperation: func(input, output any) string {
		a, o := input.(asked), output.(told)
		return fmt.Sprintf("%s %d: %d %v", a.what, a.seq, o.seq, o.found)
	},
}

// check ends the history and holds it to the model. That nobody can tell counts as a failure.
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
			h.k.t.Errorf("%d holds %s, acknowledged was %s", b.seq, b.events, h.values[b.seq])
		}
	}
}
