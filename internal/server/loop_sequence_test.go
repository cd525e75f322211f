package server

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// hidden is the body of every request of a sequence. It contains a request after its first 16
// bytes. A server that wrongly takes the body to be 16 bytes long handles this hidden request.
const hidden = "0123456789abcdefPOST /hidden HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n"

// sequence returns requests that share their header fields. Each # in fields stands for a value
// that differs between the requests. The parameter variants has one line per request. A line has
// one value for each #, separated by bars. A # without a value gets the length of the body.
func sequence(fields, variants string) string {
	var all strings.Builder
	for variant := range strings.SplitSeq(variants, "\n") {
		values := strings.Split(variant, "|")
		head := "POST /visible HTTP/1.1\r\n" + fields + "\r\n"
		for strings.Contains(head, "#") {
			value := "58"
			if len(values) > 0 {
				value, values = values[0], values[1:]
			}
			head = strings.Replace(head, "#", strings.ReplaceAll(value, "#", ""), 1)
		}
		all.WriteString(head + hidden)
	}
	return all.String()
}

// sequences are named arguments of the function sequence. In the names, a length is a
// Content-Length field.
var sequences = []struct{ name, fields, variants string }{
	{"one length", "Host: a\r\nContent-Length: #\r\n", "58\n16\n58\n058"},
	{"two lengths", "Host: a\r\nContent-Length: #\r\nContent-Length: #\r\n", "58|58\n16|58"},
	{"two lengths, the second varies", "Host: a\r\nContent-Length: #\r\nContent-Length: #\r\n", "58|58\n58|16"},
	{"two lengths, the first without a space", "Host: a\r\nContent-Length:#\r\ncontent-length: #\r\n", "58|58\n58|16\n16|58"},
	{"two lengths, one a list", "Host: a\r\nContent-Length: #\r\nContent-Length: #\r\n", "58|58\n58|58,58\n58, 58|58"},
	{"three lengths", "Host: a\r\nContent-Length: #\r\nX-A: b\r\nCONTENT-LENGTH: #\r\nContent-length: #\r\n", "58|58|58\n16|16|58\n16|58|16"},
	{"one length, then two", "Host: a\r\nContent-Length: #\r\n#", "58|\n58|Content-Length: 58\r\n\n16|Content-Length: 58\r\n"},
	{"two lengths, then one, then two", "Host: a\r\nContent-Length: #\r\n#", "58|Content-Length: 58\r\n\n16|\n16|Content-Length: 58\r\n"},
	{"a length in the value of another field", "Host: a\r\nX-A: Content-Length: #\r\nContent-Length: #\r\n", "58|58\n16|58\n58|16"},
	{"a field whose name ends like the length", "Host: a\r\nX-Content-Length: #\r\nContent-Length: #\r\n", "58|58\n16|58\n58|16"},
	{"a varying transfer coding", "Host: a\r\nContent-Length: #\r\nTransfer-Encoding: #\r\n", "58|chunked\n58|identity\n16|"},
	{"a length, then a length and a transfer coding", "Host: a\r\nContent-Length: #\r\n#", "58|\n58|Transfer-Encoding: chunked\r\n\n58|"},
	{"a varying host", "Host: #\r\nContent-Length: #\r\n", "a|58\nb|58\na b|58"},
	{"a second host", "Host: a\r\nContent-Length: #\r\n#", "58|\n58|Host: b\r\n"},
	{"a varying Connection field", "Host: a\r\nConnection: #\r\nContent-Length: #\r\n", "keep-alive|58\nKeep-Alive|58\nclose|58"},
	{"two Connection fields", "Host: a\r\nConnection: #\r\nConnection: #\r\nContent-Length: #\r\n", "keep-alive|keep-alive|58\nkeep-alive|close|58"},
	{"no Expect field, then one", "Host: a\r\nContent-Length: #\r\n#", "58|\n58|Expect: 100-continue\r\n\n58|Expect: more\r\n"},
	{"a folded length", "Host: a\r\nContent-Length: #\r\n", "58\n16\r\n 58"},
	{"an empty line after the fields", "Host: a\r\nContent-Length: #\r\n\r\n", "58\n58"},
}

// A loop remembers the header fields of the previous request. A request that shares these fields must
// get the same response as from net/http, which remembers nothing. Above all, the loop and net/http
// must agree on where a request ends.
func TestLoopSequences(t *testing.T) {
	overBoth(t, func(t *testing.T, p *pair) {
		for _, s := range sequences {
			t.Run(s.name, func(t *testing.T) {
				raw := sequence(s.fields, s.variants)
				p.compare(t, raw)
				p.compare(t, subscribing(raw))
			})
		}
	})
}

// randomSequence returns a random sequence of requests, whose header fields are fields and a random
// choice of lines, in random order. All values of the first request are plain. Each later request
// changes one value, or perhaps none if repeats is true.
func randomSequence(r *rand.Rand, fields, plain string, lines, values []string, repeats bool) string {
	for range r.IntN(4) {
		fields += lines[r.IntN(len(lines))]
	}
	row := slices.Repeat([]string{plain}, strings.Count(fields, "#"))
	variants := []string{strings.Join(row, "|")}
	for range 1 + r.IntN(4) {
		if len(row) > 0 && (!repeats || r.IntN(2) == 0) {
			row[r.IntN(len(row))] = values[r.IntN(len(values))]
		}
		variants = append(variants, strings.Join(row, "|"))
	}
	return sequence(fields, strings.Join(variants, "\n"))
}

// A loop and net/http give the same responses to random sequences of requests.
func TestLoopRandomSequences(t *testing.T) {
	lines := []string{"Content-Length: #\r\n", "content-length:#\r\n", "Content-Length: 58\r\n", "X-A: #\r\n", "X-B: c\r\nX-C: #\r\n"}
	values := []string{
		"58", "16", "0", "058", "+58", "58,58", " 58", "", "58\r\nConnection: close", "58\r\nExpect: 100-continue", "58\r\nHost: b",
		"58\r\nContent-Length: 58", "58\r\nContent-Length: 16", "58\r\nTransfer-Encoding: chunked", "58\r\nX-A: b",
	}
	p := newPair(t, false)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		if p.compare(t, randomSequence(r, "Host: a\r\nContent-Length: #\r\n", "58", lines, values, false)); t.Failed() {
			t.Fatalf("the sequence with seed %d failed", seed)
		}
	}
}

// The same with GETs of subscribers, which have no bodies, between other requests.
func TestLoopRandomSubscribers(t *testing.T) {
	lines := []string{"Content-Length: #\r\n", "content-length:#\r\n", "Content-Length: 0\r\n", "X-A: #\r\n", "X-B: c\r\nX-C: #\r\n"}
	values := []string{
		"0", "1", "00", "+0", "0,0", " 0", "", "0\r\nConnection: close", "0\r\nExpect: 100-continue", "0\r\nHost: b",
		"0\r\nContent-Length: 0", "0\r\nContent-Length: 1", "0\r\nTransfer-Encoding: chunked", "0\r\nX-A: b", "0\r\nUpgrade: h2c",
	}
	starts := []string{"GET /", "GET /a?b=c", "GET /a?b=c", "GET /declined", "POST /", "PUT /"}
	p := newPair(t, false)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		raw := randomSequence(r, "Host: a\r\nAccept: text/event-stream\r\n", "0", lines, values, true)
		raw = strings.ReplaceAll(raw, hidden, "")
		for strings.Contains(raw, "POST /visible") {
			raw = strings.Replace(raw, "POST /visible", starts[r.IntN(len(starts))], 1)
		}
		if p.compare(t, raw); t.Failed() {
			t.Fatalf("the sequence with seed %d failed", seed)
		}
	}
	if n := p.looped.Load(); n < 400 && !netHTTPOnly {
		t.Errorf("the loop gave %d responses, want at least one per sequence", n)
	}
}

// split cuts a text into pieces of random sizes.
func split(r *rand.Rand, raw string) (pieces []string) {
	for raw != "" {
		n := 1 + r.IntN(min(len(raw), 1+r.IntN(len(raw))))
		pieces, raw = append(pieces, raw[:n]), raw[n:]
	}
	return pieces
}

// A loop and net/http give the same responses however the network splits the data.
func TestLoopPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	overBoth(t, func(t *testing.T, p *pair) {
		for _, c := range loopCases {
			t.Run(c.name, func(t *testing.T) {
				for range 3 {
					if pieces := split(r, c.raw); len(pieces) < 2000 {
						p.compareInPieces(t, pieces)
					}
				}
			})
		}
	})
}

func FuzzLoopPieces(f *testing.F) {
	for i, c := range loopCases {
		f.Add(c.raw, uint64(i))
		f.Add(subscribing(c.raw), uint64(i))
	}
	p := newPair(f, false)
	f.Fuzz(func(t *testing.T, raw string, seed uint64) {
		if strings.Contains(raw, "PRI ") {
			t.Skip("HTTP/2, which the plain server does not support")
		}
		if len(raw) > maxHeaderBytes {
			t.Skip("the servers have different limits for header fields")
		}
		p.compareInPieces(t, split(rand.New(rand.NewPCG(seed, 0)), raw))
	})
}

func FuzzLoopSequence(f *testing.F) {
	for _, s := range sequences {
		f.Add(s.fields, s.variants)
	}
	p := newPair(f, false)
	f.Fuzz(func(t *testing.T, fields, variants string) {
		raw := sequence(fields, variants)
		if strings.Contains(raw, "PRI ") {
			t.Skip("HTTP/2, which the plain server does not support")
		}
		p.compare(t, raw)
		p.compare(t, subscribing(raw))
	})
}
