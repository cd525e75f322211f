package trials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/contract"
)

var (
	producerKills = flag.Int("trials.producer-kills", 5, "number of times that TestProducers kills the server")
	producerCuts  = flag.Int("trials.producer-cuts", 3, "number of times that TestProducersPowerCut cuts the power")
)

// The test kills the server while idempotent producers write with the Durable Streams protocol
// (/ds), and restarts it on the same data. After each restart the log has every acknowledged
// message at the position that the acknowledgement named, and no message of a producer is missing
// or stored twice. The server knows exactly how far each producer is: it stores a repeated append
// if and only if the log does not have the message, and it refuses an epoch as outdated only if it
// knows a newer one.
func TestProducers(t *testing.T) {
	t.Parallel()
	r, _ := seeded(t)
	data := t.TempDir()
	p := newProducing(t, r)
	for cycle := range *producerKills {
		p.start(data)
		p.verify()
		p.load(time.Duration(20+r.IntN(300))*time.Millisecond, func() { p.server.kill() })
		if t.Failed() {
			p.fail(data, cycle)
		}
	}
	p.start(data)
	p.finish()
}

// producing is a server that is killed again and again while producers write to it.
type producing struct {
	*crash
	topics  []*topic
	settled int // number of appends without a response that were repeated after a restart
	stored  int // how many of these the log had
}

// topic is a stream under /ds, and what clients know about it.
type topic struct {
	path      string
	json      bool
	producers []*producer

	mu    sync.Mutex
	log   []string       // all messages that the stream had after the last restart, in order
	acked map[int]string // messages acknowledged since that restart, by their position in the log
	seen  map[int]string // messages that a reader got since that restart, by their position in the log
}

// producer is a writer with an id. It numbers its messages within an epoch.
type producer struct {
	id      string
	mu      sync.Mutex
	epoch   uint64
	next    uint64                   // number of the next new message
	pending map[uint64]chan struct{} // messages without a response; the channel is closed at the acknowledgement

	last  message // the newest message of this producer that was read from the log
	known message // the newest one that the server has stored: last, or one that was appended since
	read  bool    // last is set
	some  bool    // known is set
}

// message is what a producer writes. Each attempt to write a message is different, so that the log
// shows which attempt was stored.
type message struct {
	Producer string `json:"p"`
	Epoch    uint64 `json:"e"`
	Seq      uint64 `json:"s"`
	Attempt  string `json:"a"`
}

func newProducing(t *testing.T, r *rand.Rand) *producing {
	p := &producing{crash: &crash{t: t, r: r, ledger: newLedger()}}
	for i := range 2 {
		s := &topic{path: fmt.Sprintf("/ds/topics/%d", i), json: i == 0, acked: map[int]string{}, seen: map[int]string{}}
		for n := range 4 {
			s.producers = append(s.producers, &producer{id: fmt.Sprintf("producer-%d", n), pending: map[uint64]chan struct{}{}})
		}
		p.topics = append(p.topics, s)
	}
	return p
}

// start starts the server, and creates the streams at the first start.
func (p *producing) start(data string) {
	p.t.Helper()
	p.crash.start(data)
	for _, s := range p.topics {
		if status, _, b := p.send("PUT", s.path, "", http.Header{"Content-Type": {s.contentType()}}); status != 201 && status != 200 {
			p.t.Fatalf("create %s: %d %s", s.path, status, b)
		}
	}
}

func (s *topic) contentType() string {
	if s.json {
		return "application/json"
	}
	return "text/plain"
}

// split returns the messages in the content of a stream.
func (s *topic) split(content []byte) (list []string, err error) {
	if !s.json {
		text := strings.SplitAfter(string(content), "\n")
		return text[:len(text)-1], nil
	}
	var raw []json.RawMessage
	err = json.Unmarshal(content, &raw)
	for _, m := range raw {
		list = append(list, string(m))
	}
	return list, err
}

// send sends a request and waits for its response, which the server must give.
func (p *producing) send(method, path, body string, h http.Header) (int, http.Header, []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	status, header, b, err := p.try(ctx, method, path, body, h)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, header, b
}

// try sends a request. If it returns an error, the outcome of the request is unknown.
func (p *producing) try(ctx context.Context, method, path, body string, h http.Header) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.caller.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if req.Header = h.Clone(); req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Authorization", "Bearer "+liveKey)
	resp, err := p.caller.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		err = ctx.Err() // a response after the server was killed or the power was cut proves nothing
	}
	if err == nil && resp.StatusCode >= 500 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	return resp.StatusCode, resp.Header, b, err
}

// attempt returns the text of a message, and the header fields of the request that appends it.
func (s *topic) attempt(id string, epoch, seq uint64, r *rand.Rand) (string, http.Header) {
	m := message{id, epoch, seq, fmt.Sprintf("%x%s", r.Uint64(), bytes.Repeat([]byte("x"), r.IntN(600)))}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	if !s.json {
		text = append(text, '\n')
	}
	return string(text), http.Header{
		"Content-Type": {s.contentType()}, "Producer-Id": {id},
		"Producer-Epoch": {strconv.FormatUint(epoch, 10)}, "Producer-Seq": {strconv.FormatUint(seq, 10)},
	}
}

// positionOf returns the position of a message in the log. It computes the position from the header
// field Stream-Next-Offset, the offset after the message.
func positionOf(h http.Header) (int, error) {
	first, _, _ := strings.Cut(h.Get("Stream-Next-Offset"), "_")
	n, err := strconv.Atoi(strings.TrimLeft(first, "0"))
	return n - 1, err
}

// load runs readers, and producers with several appends in flight each. After some time it calls
// the function kill, which kills the server.
func (p *producing) load(last time.Duration, kill func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work sync.WaitGroup
	for _, s := range p.topics {
		from := len(s.log)
		work.Go(func() { p.reader(ctx, s, from) })
		for _, w := range s.producers {
			for range 3 {
				own := rand.New(rand.NewPCG(p.r.Uint64(), 7))
				work.Go(func() { p.writer(ctx, s, w, own) })
			}
		}
	}
	timer := time.NewTimer(last)
	<-timer.C
	kill()
	cancel()
	work.Wait()
	p.ledger.cut = false
}

// writer appends new messages of a producer until the server is killed. Several writers share the
// messages of one producer, so a message may arrive before the one with the next lower number. The
// server then refuses the message, and the writer repeats it when the other one is acknowledged.
func (p *producing) writer(ctx context.Context, s *topic, w *producer, r *rand.Rand) {
	for ctx.Err() == nil {
		w.mu.Lock()
		seq, done := w.next, make(chan struct{})
		w.next++
		before := w.pending[seq-1] // nil if that message is acknowledged
		w.pending[seq] = done
		w.mu.Unlock()
		for early := false; ; early = true {
			text, h := s.attempt(w.id, w.epoch, seq, r)
			status, answer, b, err := p.try(ctx, "POST", s.path, text, h)
			if err != nil {
				return // the outcome is unknown
			}
			if (status == 409 || status == 400) && before != nil && !early { // at the beginning of an epoch the status is 400
				select {
				case <-before:
				case <-ctx.Done():
					return
				}
				continue
			}
			if status != 200 {
				p.t.Errorf("%s: a new message %d of %s in epoch %d got %d %s %v", s.path, seq, w.id, w.epoch, status, b, answer)
				return
			}
			if !p.acknowledged(s, answer, text) {
				return
			}
			w.mu.Lock()
			delete(w.pending, seq)
			close(done)
			w.mu.Unlock()
			break
		}
	}
}

// acknowledged records a stored message. It returns false if the power cut has begun, because then the
// message may be lost.
func (p *producing) acknowledged(s *topic, h http.Header, text string) bool {
	at, err := positionOf(h)
	if err != nil {
		p.t.Errorf("%s: %v", s.path, err)
		return false
	}
	p.ledger.mu.Lock()
	cut := p.ledger.cut
	p.ledger.mu.Unlock()
	if cut {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, twice := s.acked[at]; twice {
		p.t.Errorf("%s: two messages were acknowledged at position %d: %s and %s", s.path, at, contract.Shorten(other), contract.Shorten(text))
	}
	s.acked[at] = text
	return true
}

// reader follows a stream as server-sent events until the server is killed.
func (p *producing) reader(ctx context.Context, s *topic, from int) {
	req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s%s?live=sse&offset=%016d_%016d", p.caller.url, s.path, from, 0), nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+liveKey)
	resp, err := p.caller.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		p.t.Errorf("%s: a reader got %d", s.path, resp.StatusCode)
		return
	}
	for d := contract.NewDecoder(&quiet{r: resp.Body}); ; {
		e, err := d.Next()
		if err != nil {
			if !errors.Is(err, errCut) && err != io.EOF {
				p.t.Errorf("%s: a reader: %v", s.path, err)
			}
			return
		}
		if e.Name != "data" {
			continue
		}
		list, err := s.split([]byte(e.Data))
		if err != nil {
			p.t.Errorf("%s: a reader got %s: %v", s.path, contract.Shorten(e.Data), err)
			return
		}
		p.ledger.mu.Lock()
		if !p.ledger.cut {
			s.mu.Lock()
			for _, text := range list {
				s.seen[from] = text
				from++
			}
			s.mu.Unlock()
		}
		p.ledger.mu.Unlock()
	}
}
