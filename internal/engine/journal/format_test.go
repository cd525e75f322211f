package journal

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/engine"
)

func drawRecord(t *rapid.T) record {
	r := record{
		kind: kind(rapid.Uint8Range(1, 6).Draw(t, "kind")), flags: engine.Flags(rapid.Uint8Range(0, 0xf).Draw(t, "flags")),
		log: rapid.Uint64().Draw(t, "log"), seq: rapid.Uint64().Draw(t, "seq"), time: rapid.Int64().Draw(t, "time"),
		count:       rapid.Uint32().Draw(t, "count"),
		contentType: rapid.StringOfN(rapid.Rune(), -1, -1, engine.MaxContentType).Draw(t, "content type"),
		key:         rapid.StringOfN(rapid.Rune(), -1, -1, engine.MaxKey).Draw(t, "key"),
		publisher:   rapid.StringOfN(rapid.Rune(), -1, -1, weir.MaxPublisher).Draw(t, "publisher"),
		tag:         rapid.StringOfN(rapid.Rune(), -1, -1, engine.MaxTag).Draw(t, "tag"),
		payload:     rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
	}
	r.payloadSum, r.length = sum(0, r.payload), uint32(len(r.payload))
	return r
}

func encode(r *record, seed uint32) []byte { return append(r.appendHead(nil, seed), r.payload...) }

// TestRecordRoundTrip decodes encoded records. A record is valid in its own segment and in no
// other.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		salt := [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "salt"))
		number := rapid.Uint64Range(0, 1<<32-1).Draw(t, "number")
		other := rapid.Uint64Range(0, 1<<32-1).Filter(func(n uint64) bool { return n != number }).Draw(t, "other")
		b := encode(&r, seed(salt, number))
		if len(b) > r.size() || r.size()%align != 0 || r.headLen() > len(b) {
			t.Fatalf("the record is encoded in %d bytes, but size returns %d", len(b), r.size())
		}
		var got record
		if err := got.decode(append(b, "what follows"...), seed(salt, number)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.payload, r.payload) {
			t.Fatal("payload differs")
		}
		if again := encode(&got, seed(salt, number)); !bytes.Equal(again, b) {
			t.Fatalf("the decoded record encodes to\n%x, want\n%x", again, b)
		}
		if err := got.decode(b, seed(salt, other)); err == nil {
			t.Fatalf("a record of segment %d is valid in segment %d", number, other)
		}
		if n := rapid.IntRange(0, len(b)-1).Draw(t, "cut"); got.decode(b[:n], seed(salt, number)) == nil {
			t.Fatalf("a record that is cut to %d of %d bytes is valid", n, len(b))
		}
		sl := decodeSlot(appendSlot(nil, 77, &r))
		want := slot{77, uint32(len(r.payload)), uint16(r.headLen()), r.kind, r.flags, r.count, r.log, r.seq, r.time, r.key != "", r.tag != ""}
		if sl != want {
			t.Fatalf("slot %+v, want %+v", sl, want)
		}
		if k, want := decodeKeySlot(appendKeySlot(nil, 78, &r)), (keySlot{78, uint16(len(r.key)), r.count, weir.DigestKey(r.key)}); k != want {
			t.Fatalf("key slot %+v, want %+v", k, want)
		}
	})
}

// TestFramesRoundTrip decodes encoded frames, footers, headers, watermarks and endings.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, other := rapid.Uint32().Draw(t, "seed"), rapid.Uint32().Draw(t, "other")
		if s == other {
			t.Skip("both seeds are the same")
		}
		f := frame{length: rapid.IntRange(0, 1<<31).Draw(t, "length"), group: rapid.Uint64().Draw(t, "group"), bond: rapid.Uint32().Draw(t, "bond")}
		b := make([]byte, frameSize)
		encodeFrame(b, s, f)
		got, ok := decodeFrame(b, s)
		if _, foreign := decodeFrame(b, other); !ok || got != f || foreign {
			t.Fatalf("frame %+v, want %+v", got, f)
		}
		keys := keyTable{int64(f.length), rapid.IntRange(1, 1000).Draw(t, "keys"), s + other}
		e := footer{f.group, f.group + 1, int64(f.length), int(f.bond), keys.at + keySpace(keys.count), s ^ other, keys}
		if rapid.Bool().Draw(t, "no keys") {
			e.keys = keyTable{}
		}
		b = e.encode(s)
		end, ok := decodeFooter(b, s)
		if _, foreign := decodeFooter(b, other); !ok || end != e || foreign {
			t.Fatalf("footer %+v, want %+v", end, e)
		}
		salt := [8]byte{byte(s), byte(s >> 8), byte(s >> 16), byte(s >> 24), 1}
		s = seed(salt, f.group)
		b = encodeHeader(salt, f.group, 1<<20)
		if found, size, ok := saltOf(bytes.NewReader(b)); found != salt || size != 1<<20 || !ok {
			t.Fatalf("salt %x in the header, want %x", found, salt)
		}
		if checkHeader(b, s, f.group, 1<<20) != nil || checkHeader(b, other, f.group, 1<<20) == nil ||
			checkHeader(b, s, f.group+1, 1<<20) == nil || checkHeader(b, s, f.group, 1<<21) == nil {
			t.Fatal("the header is invalid with its own seed, number and size, or valid with others")
		}
		b = encodeWatermark(s, int64(f.length), f.group)
		under, final := decodeWatermark(b, s)
		if strange, _ := decodeWatermark(b, other); under != int64(f.length) || final != (f.group&finalMark != 0) || strange != 0 {
			t.Fatal("the watermark is invalid under its own seed, or valid under another")
		}
	})
}

// TestZerosAreInvalid decodes zeros under many seeds. A segment that was prepared with zeros holds
// nothing valid.
func TestZerosAreInvalid(t *testing.T) {
	zeros := make([]byte, dataStart)
	for n := range uint32(10_000) {
		s := n * 429_497
		var r record
		_, frame := decodeFrame(zeros, s)
		_, footer := decodeFooter(zeros, s)
		mark, _ := decodeWatermark(zeros, s)
		if frame || footer || r.decode(zeros, s) == nil || checkHeader(zeros, s, 0, 0) == nil || mark != 0 {
			t.Fatalf("zeros are valid under seed %d", s)
		}
	}
}

// FuzzRecordDecode decodes arbitrary bytes, with and without corrected checksums. Decoding never
// panics, and a decoded record encodes to the same bytes.
func FuzzRecordDecode(f *testing.F) {
	r := record{kind: kindBatch, log: 1, seq: 2, time: 3, count: 4, contentType: "text/plain", key: "k", payload: []byte("hello")}
	r.payloadSum = sum(0, r.payload)
	f.Add(encode(&r, 7), uint32(7), false)
	f.Add(encode(&r, 7), uint32(8), true)
	f.Add(make([]byte, 100), uint32(0), true)
	f.Fuzz(func(t *testing.T, b []byte, seed uint32, repair bool) {
		if repair && len(b) >= recordSize {
			head := int(binary.LittleEndian.Uint16(b[12:]))
			length := uint64(binary.LittleEndian.Uint32(b[8:]))
			if head >= recordSize && uint64(head)+length <= uint64(len(b)) {
				binary.LittleEndian.PutUint32(b[4:], sum(0, b[head:head+int(length)]))
				binary.LittleEndian.PutUint32(b, sum(seed, b[4:head]))
			}
		}
		var r record
		if r.decode(b, seed) != nil {
			return
		}
		again := encode(&r, seed)
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%x decodes to a record that encodes to %x", b, again)
		}
		if r.decode(b, seed^1) == nil {
			t.Error("the record is valid under two seeds")
		}
	})
}
