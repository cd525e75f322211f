package blocks

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
)

// shapes returns contents with repetitions of all lengths and distances, and with many and few
// literals between them.
func shapes() map[string][]byte {
	random := make([]byte, Size)
	rand.NewChaCha8([32]byte{2}).Read(random)
	m := map[string][]byte{"nothing": {}, "random": random, "zeros": make([]byte, Size), "json": content()[Start : Start+Size]}
	for _, n := range []int{1, 7, 8, 9, 63, 64, 65, 100, 1000, 3000} {
		m[fmt.Sprint("zeros ", n)] = make([]byte, n)
		m[fmt.Sprint("json ", n)] = m["json"][:n]
		m[fmt.Sprint("every ", n)] = bytes.Repeat(random[:n], Size/n)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 100 { // pieces of random bytes, and copies of what came before
		b := random[:1+r.IntN(50)]
		for len(b) < Size {
			n, back := 1+r.IntN(1+r.IntN(600)), 1+r.IntN(len(b))
			if r.IntN(3) == 0 {
				n = min(n, 40)
				b = append(b[:len(b):len(b)], random[Size-n-r.IntN(Size/2):][:n]...)
			}
			for range n {
				b = append(b, b[len(b)-back])
			}
		}
		m[fmt.Sprint("copies ", i)] = b[:1+r.IntN(Size)]
	}
	return m
}

// Content is the same after it was encoded and decoded.
func TestCodec(t *testing.T) {
	encoded := 0
	for name, content := range shapes() {
		var m matcher
		m.find(content)
		data := m.appendTo(nil)
		b := make([]byte, len(content))
		if len(data) != m.length() || !decodeSequences(b, data) || !bytes.Equal(b, content) {
			t.Errorf("%s: %d bytes, encoded %d: the decoded content differs", name, len(content), len(data))
		}
		data, c := encode(nil, content)
		if !c.decode(b, data) || !bytes.Equal(b, content) {
			t.Errorf("%s: codec %d: the decoded content differs", name, c)
		}
		if c == sequences {
			encoded++
		}
	}
	if encoded < 50 {
		t.Errorf("%d contents were compressed", encoded)
	}
	if data, c := encode(nil, shapes()["json"]); c != sequences || len(data) > Size/3 {
		t.Errorf("JSON: codec %d, %d bytes", c, len(data))
	}
}

// However far a block is decoded first, this part has its content, and the rest can be decoded later.
func TestDecodeInParts(t *testing.T) {
	for name, content := range shapes() {
		var m matcher
		m.find(content)
		data := m.appendTo(nil)
		step := 1
		if len(content) > 3000 { // every length would take too long
			step = 1501
		}
		for n := 0; n <= len(content); n += step * faulty.Step() {
			b := make([]byte, len(content))
			d, ok := newDecoder(b, data)
			if !ok || !d.decode(n) || d.n < n || !bytes.Equal(b[:d.n], content[:d.n]) {
				t.Fatalf("%s: %d of %d bytes: %d decoded, or the content differs", name, n, len(content), d.n)
			}
			if !d.decode(len(b)) || !bytes.Equal(b, content) {
				t.Fatalf("%s: %d of %d bytes, then the rest: the content differs", name, n, len(content))
			}
		}
		b := make([]byte, len(content))
		d, _ := newDecoder(b, data)
		for n := 0; n <= len(content); n += faulty.Step() {
			if !d.decode(n) || n > 0 && b[n-1] != content[n-1] {
				t.Fatalf("%s: %d of %d bytes, one after another: the content differs", name, n, len(content))
			}
		}
	}
}

// Data that is not valid is refused, or decoded to some content of the right length. Nothing outside
// of the content is written. Decoding in two parts has the same outcome as decoding all at once.
func FuzzDecode(f *testing.F) {
	for _, content := range shapes() {
		data, _ := encode(nil, content)
		f.Add(data, len(content), len(content)/2)
	}
	f.Fuzz(func(t *testing.T, data []byte, n, part int) {
		if n < 0 || n > Size {
			return
		}
		const guard = 64
		data = data[:len(data):len(data)]
		room := bytes.Repeat([]byte{0xa5}, n+2*guard)
		b := room[guard : guard+n : guard+n]
		whole := make([]byte, n)
		valid := decodeSequences(whole, data)
		d, ok := newDecoder(b, data)
		ok = ok && d.decode(min(max(0, part), n))
		begun := bytes.Clone(b[:d.n])
		ok = ok && d.decode(n)
		if ok != valid || ok && !bytes.Equal(b, whole) || !bytes.Equal(begun, b[:len(begun)]) {
			t.Errorf("%d bytes of content: valid %v, in two parts %v, or the content differs", n, valid, ok)
		}
		if want := bytes.Repeat([]byte{0xa5}, guard); !bytes.Equal(room[:guard], want) || !bytes.Equal(room[guard+n:], want) {
			t.Errorf("%d bytes of content: bytes outside were written", n)
		}
	})
}

// Every content is the same after it was encoded and decoded.
func FuzzEncode(f *testing.F) {
	for _, content := range shapes() {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		content = content[:min(len(content), Size)]
		var m matcher
		m.find(content)
		b := make([]byte, len(content))
		if !decodeSequences(b, m.appendTo(nil)) || !bytes.Equal(b, content) {
			t.Error("the decoded content differs")
		}
	})
}

// s2 is a file that was written with blocks of 32 KiB that are compressed with S2.
//
//go:embed testdata/s2.gz.base64
var s2File string

// A file that an earlier version has written can be read, also without its table of blocks.
func TestS2(t *testing.T) {
	const size = Start + 2*sizeS2 + 5000
	var all bytes.Buffer
	for i := 0; all.Len() < size; i++ {
		fmt.Fprintf(&all, `{"id":%d,"type":"order.created","customer":"customer-%d"}`, i, i*7919%10007)
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(s2File)))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []bool{false, true} {
		if damaged {
			stored[len(stored)-1] ^= 1
		}
		f, err := faulty.New().Create("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.WriteAt(0, stored); err != nil {
			t.Fatal(err)
		}
		x, err := Open(disk.File(f), testSeed, size, &Cache{})
		if err != nil || x == nil || (x.Fault() != nil) != damaged {
			t.Fatalf("damaged %v: file %v, error %v", damaged, x, err)
		}
		b := make([]byte, size)
		if n, err := x.ReadAt(b, 0); n != size || err != nil || !bytes.Equal(b, all.Bytes()[:size]) {
			t.Errorf("damaged %v: %d bytes, error %v", damaged, n, err)
		}
		if n, err := x.ReadAt(b[:100], Start+sizeS2-50); n != 100 || err != nil || !bytes.Equal(b[:100], all.Bytes()[Start+sizeS2-50:][:100]) {
			t.Errorf("damaged %v: across two blocks: %d bytes, error %v", damaged, n, err)
		}
	}
}
