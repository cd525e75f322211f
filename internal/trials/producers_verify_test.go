package trials

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"weir/internal/contract"
)

// verify checks a server that has just started: what it has stored, and what it knows about the
// producers.
func (p *producing) verify() {
	p.t.Helper()
	for _, s := range p.topics {
		list := p.read(s, len(s.log))
		s.log = append(s.log, list...)
		for what, known := range map[string]map[int]string{"acknowledged": s.acked, "seen by a reader": s.seen} {
			for at, text := range known {
				if at >= len(s.log) {
					p.t.Errorf("%s: message %d was %s, but is lost: %s", s.path, at, what, contract.Shorten(text))
				} else if s.log[at] != text {
					p.t.Errorf("%s: message %d was %s as %s, but is %s", s.path, at, what, contract.Shorten(text), contract.Shorten(s.log[at]))
				}
			}
		}
		s.acked, s.seen = map[int]string{}, map[int]string{}
		s.account(p, list)
		for _, w := range s.producers {
			p.settle(s, w)
			p.probe(s, w)
		}
	}
}

// finish checks the server for the last time, reads the streams again from their beginning, and stops
// the server.
func (p *producing) finish() {
	p.verify()
	p.verify() // a second time, to check the messages that the first call appended again
	total := 0
	for _, s := range p.topics {
		if again := p.read(s, 0); !slices.Equal(again, s.log) {
			p.t.Errorf("%s: the stream has %d messages, which differ from the %d that were read before", s.path, len(again), len(s.log))
		}
		total += len(s.log)
	}
	p.server.stop(p.t)
	p.t.Logf("%d starts: %d messages stored; %d appends had no response, and the log had %d of them", p.starts, total, p.settled, p.stored)
}

// read reads a stream from a position to its end.
func (p *producing) read(s *topic, from int) (list []string) {
	p.t.Helper()
	offset := fmt.Sprintf("%016d_%016d", from, 0)
	for {
		status, h, b := p.send("GET", s.path+"?offset="+offset, "", nil)
		if status != 200 {
			p.t.Fatalf("%s: read from %s: %d %s", s.path, offset, status, b)
		}
		some, err := s.split(b)
		if err != nil {
			p.t.Fatalf("%s: read from %s: %v", s.path, offset, err)
		}
		list = append(list, some...)
		offset = h.Get("Stream-Next-Offset")
		if h.Get("Stream-Up-To-Date") == "true" {
			if want := fmt.Sprintf("%016d_%016d", from+len(list), 0); offset != want {
				p.t.Errorf("%s: the stream ends at the offset %s, want %s after %d messages", s.path, offset, want, from+len(list))
			}
			return list
		}
	}
}

// account checks that the messages of each producer follow each other without a gap and without a
// duplicate.
func (s *topic) account(p *producing, list []string) {
	p.t.Helper()
	for _, text := range list {
		var m message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			p.t.Errorf("%s: message %s: %v", s.path, contract.Shorten(text), err)
			continue
		}
		i := slices.IndexFunc(s.producers, func(w *producer) bool { return w.id == m.Producer })
		if i < 0 {
			p.t.Errorf("%s: message %s has an unknown producer", s.path, contract.Shorten(text))
			continue
		}
		w := s.producers[i]
		follows := w.read && m.Epoch == w.last.Epoch && m.Seq == w.last.Seq+1
		begins := m.Seq == 0 && m.Epoch <= w.epoch && (!w.read || m.Epoch > w.last.Epoch)
		if !follows && !begins {
			p.t.Errorf("%s: after message %d of epoch %d of %s the log has message %d of epoch %d", s.path, w.last.Seq, w.last.Epoch, w.id, m.Seq, m.Epoch)
		}
		w.last, w.known, w.read, w.some = m, m, true, true
	}
}

// has reports whether the server has stored the message with this number in the present epoch.
func (w *producer) has(seq uint64) bool {
	return w.some && (w.known.Epoch > w.epoch || w.known.Epoch == w.epoch && seq <= w.known.Seq)
}

// append appends a message after a restart and checks the status of the response.
func (p *producing) append(s *topic, w *producer, epoch, seq uint64, want int, why string) http.Header {
	p.t.Helper()
	text, h := s.attempt(w.id, epoch, seq, rand.New(rand.NewPCG(p.r.Uint64(), 9)))
	status, answer, b := p.send("POST", s.path, text, h)
	if status != want {
		p.t.Errorf("%s: message %d of %s in epoch %d got %d %s, want %d: %s", s.path, seq, w.id, epoch, status, b, want, why)
		return answer
	}
	if status == 200 {
		p.acknowledged(s, answer, text)
	}
	return answer
}

// settle repeats the appends of a producer that got no response, in order. Sometimes the producer
// forgets them instead and begins a new epoch, as a program does that crashed too.
func (p *producing) settle(s *topic, w *producer) {
	p.t.Helper()
	if w.some && w.known.Epoch == w.epoch && p.r.IntN(4) == 0 {
		clear(w.pending)
		w.epoch, w.next = w.epoch+1, 0
	}
	for _, seq := range slices.Sorted(maps.Keys(w.pending)) {
		p.settled++
		if w.has(seq) {
			p.stored++
			p.append(s, w, w.epoch, seq, 204, "the log has it")
		} else {
			p.append(s, w, w.epoch, seq, 200, "the log does not have it")
			w.known, w.some = message{Producer: w.id, Epoch: w.epoch, Seq: seq}, true
		}
		delete(w.pending, seq)
	}
}

// probe sends appends that the server must refuse, or recognise as duplicates.
func (p *producing) probe(s *topic, w *producer) {
	p.t.Helper()
	if !w.some || w.known.Epoch != w.epoch {
		return
	}
	p.append(s, w, w.epoch, p.r.Uint64N(w.known.Seq+1), 204, "it was stored before")
	h := p.append(s, w, w.epoch, w.known.Seq+2, 409, "the message before it is missing")
	if got, want := h.Get("Producer-Expected-Seq"), strconv.FormatUint(w.known.Seq+1, 10); got != want {
		p.t.Errorf("%s: the server expects message %s of %s next, want %s", s.path, got, w.id, want)
	}
	if w.epoch > 0 {
		h := p.append(s, w, w.epoch-1, 0, 403, "the epoch is over")
		if got, want := h.Get("Producer-Epoch"), strconv.FormatUint(w.epoch, 10); got != want {
			p.t.Errorf("%s: the server says that %s is in epoch %s, want %s", s.path, w.id, got, want)
		}
	}
}
