package deflate

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// events returns n JSON events of about this many bytes.
func events(rng *rand.Rand, n, size int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id":%d,"user":"user-%d","action":"view","at":"2026-11-15T08:%02d:%02d.000Z","items":[`, rng.Uint32(), rng.IntN(1000), i%60, rng.IntN(60))
		for start := b.Len(); b.Len()-start < size; {
			fmt.Fprintf(&b, `{"sku":"sku-%05d","count":%d,"price":%d.%02d,"title":"%s"},`, rng.IntN(100000), 1+rng.IntN(9), rng.IntN(300), rng.IntN(100), []string{"green tea", "rye bread", "whole milk", "salt"}[rng.IntN(4)])
		}
		b.WriteString("]}\n")
	}
	return b.Bytes()
}

// Parts that were compressed separately form one gzip member, in any order and mixed with stored
// parts. A decoder gets each part as soon as its bytes have arrived.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var plain, sent bytes.Buffer
		var m Member
		sent.Write(Header)
		in, out := io.Pipe()
		received := make(chan string)
		go func() {
			z, err := gzip.NewReader(in)
			if err != nil {
				t.Error(err)
				close(received)
				return
			}
			z.Multistream(false)
			for {
				b := make([]byte, 1<<20)
				n, err := z.Read(b)
				if n > 0 {
					received <- string(b[:n])
				}
				if err != nil {
					received <- err.Error()
					return
				}
			}
		}()
		out.Write(Header)
		for range rng.IntN(20) {
			data := events(rng, rng.IntN(5), rng.IntN(3000))
			if rng.IntN(4) == 0 {
				data = []byte(strings.Repeat("x", rng.IntN(100_000)))
			}
			p := Compress(nil, data)
			if rng.IntN(3) == 0 {
				p = Store(nil, data)
			}
			m.Add(&p)
			plain.Write(data)
			sent.Write(p.Bytes)
			go out.Write(p.Bytes)
			for got := 0; got < len(data); {
				got += len(<-received)
			}
		}
		sent.Write(m.Trailer())
		go out.Write(m.Trailer())
		if got := <-received; got != "EOF" {
			t.Fatalf("at the end, the decoder returned %q", got)
		}
		z, err := gzip.NewReader(&sent)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(got, plain.Bytes()) {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, plain.Len())
		}
	}
}

// Compressing batches of JSON events makes them several times smaller.
func TestRatio(t *testing.T) {
	data := events(rand.New(rand.NewPCG(1, 1)), 20, 1000)
	p := Compress(nil, data)
	if len(p.Bytes)*4 > len(data) {
		t.Errorf("%d bytes became %d, want at most a quarter", len(data), len(p.Bytes))
	}
	t.Logf("%d bytes became %d", len(data), len(p.Bytes))
}

func BenchmarkCompress(b *testing.B) {
	data := events(rand.New(rand.NewPCG(1, 1)), 20, 1000)
	b.SetBytes(int64(len(data)))
	buf := make([]byte, 0, len(data))
	for b.Loop() {
		Compress(buf, data)
	}
}

func BenchmarkAdd(b *testing.B) {
	p := Compress(nil, events(rand.New(rand.NewPCG(1, 1)), 20, 1000))
	var m Member
	for b.Loop() {
		m.Add(&p)
	}
}
