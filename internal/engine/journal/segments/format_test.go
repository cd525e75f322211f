package segments

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/engine"
)

func drawRecord(t *rapid.T) Record {
	r := Record{
		Kind: Kind(rapid.Uint8Range(1, 6).Draw(t, "kind")), Flags: engine.Flags(rapid.Uint8Range(0, 0xf).Draw(t, "flags")),
		Log: rapid.Uint64().Draw(t, "log"), Seq: rapid.Uint64().Draw(t, "seq"), Time: rapid.Int64().Draw(t, "time"),
		Count:       rapid.Uint32().Draw(t, "count"),
		ContentType: rapid.StringOfN(rapid.Rune(), -1, -1, engine.MaxContentType).Draw(t, "content type"),
		Key:         rapid.StringOfN(rapid.Rune(), -1, -1, engine.MaxKey).Draw(t, "key"),
		Publisher:   rapid.StringOfN(rapid.Rune(), -1, -1, weir.MaxPublisher).Draw(t, "publisher"),
		Tag:         rapid.StringOfN(rapid.Rune(), -1, -1, engine.MaxTag).Draw(t, "tag"),
		Payload:     rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"),
	}
	r.PayloadSum, r.Length = Sum(0, r.Payload), uint32(len(r.Payload))
	return r
}

func encode(r *Record, seed uint32) []byte { return append(r.appendHead(nil, seed), r.Payload...) }

// TestRecordRoundTrip decodes encoded records. A record is valid in its own segment and in no
// other.
func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		salt := [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "salt"))
		number := rapid.Uint64Range(0, 1<<32-1).Draw(t, "number")
		other := rapid.Uint64Range(0, 1<<32-1).Filter(func(n uint64) bool { return n != number }).Draw(t, "other")
		b := encode(&r, seed(salt, number))
		if len(b) > r.Size() || r.Size()%align != 0 || r.HeadLen() > len(b) {
			t.Fatalf("the record is encoded in %d bytes, but size returns %d", len(b), r.Size())
		}
		var got Record
		if err := got.Decode(append(b, "what follows"...), seed(salt, number)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Payload, r.Payload) {
			t.Fatal("payload differs")
		}
		if again := encode(&got, seed(salt, number)); !bytes.Equal(again, b) {
			t.Fatalf("the decoded record encodes to\n%x, want\n%x", again, b)
		}
		if err := got.Decode(b, seed(salt, other)); err == nil {
			t.Fatalf("a record of segment %d is valid in segment %d", number, other)
		}
		if n := rapid.IntRange(0, len(b)-1).Draw(t, "cut"); got.Decode(b[:n], seed(salt, number)) == nil {
			t.Fatalf("a record that is cut to %d of %d bytes is valid", n, len(b))
		}
		sl := DecodeSlot(appendSlot(nil, 77, &r))
		want := Slot{77, uint32(len(r.Payload)), uint16(r.HeadLen()), r.Kind, r.Flags, r.Count, r.Log, r.Seq, r.Time, r.Key != "", r.Tag != ""}
		if sl != want {
			t.Fatalf("slot %+v, want %+v", sl, want)
		}
		if k, want := DecodeKeySlot(appendKeySlot(nil, 78, &r)), (KeySlot{78, uint16(len(r.Key)), r.Count, weir.DigestKey(r.Key)}); k != want {
			t.Fatalf("key slot %+v, want %+v", k, want)
		}
	})
}

// TestFramesRoundTrip decodes encoded frames, footers, headers and watermarks.
func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, other := rapid.Uint32().Draw(t, "seed"), rapid.Uint32().Draw(t, "other")
		if s == other {
			t.Skip("both seeds are the same")
		}
		f := frame{length: rapid.IntRange(0, 1<<31).Draw(t, "length"), group: rapid.Uint64().Draw(t, "group"), bond: rapid.Uint32().Draw(t, "bond")}
		b := make([]byte, FrameSize)
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
		b = encodeHeader(salt, f.group, 1<<20, false)
		if found, size, ok := SaltOf(bytes.NewReader(b)); found != salt || size != 1<<20 || !ok {
			t.Fatalf("salt %x in the header, want %x", found, salt)
		}
		if checkHeader(b, s, f.group, 1<<20) != nil || checkHeader(b, other, f.group, 1<<20) == nil ||
			checkHeader(b, s, f.group+1, 1<<20) == nil || checkHeader(b, s, f.group, 1<<21) == nil {
			t.Fatal("the header is invalid with its own seed, number and size, or valid with others")
		}
		b = encodeWatermark(s, int64(f.length), f.group)
		under, final := decodeWatermark(b, s)
		if strange, _ := decodeWatermark(b, other); under != int64(f.length) || final != (f.group&FinalMark != 0) || strange != 0 {
			t.Fatal("the watermark is invalid under its own seed, or valid under another")
		}
	})
}

// TestZerosAreInvalid decodes zeros under many seeds. A segment that was prepared with zeros holds
// nothing valid.
func TestZerosAreInvalid(t *testing.T) {
	zeros := make([]byte, DataStart)
	for n := range uint32(10_000) {
		s := n * 429_497
		var r Record
		_, frame := decodeFrame(zeros, s)
		_, footer := decodeFooter(zeros, s)
		mark, _ := decodeWatermark(zeros, s)
		if frame || footer || r.Decode(zeros, s) == nil || checkHeader(zeros, s, 0, 0) == nil || mark != 0 {
			t.Fatalf("zeros are valid under seed %d", s)
		}
	}
}

// FuzzRecordDecode decodes arbitrary bytes, with and without corrected checksums. Decoding never
// panics, and a decoded record encodes to the same bytes.
func FuzzRecordDecode(f *testing.F) {
	r := Record{Kind: KindBatch, Log: 1, Seq: 2, Time: 3, Count: 4, ContentType: "text/plain", Key: "k", Payload: []byte("hello")}
	r.PayloadSum = Sum(0, r.Payload)
	f.Add(encode(&r, 7), uint32(7), false)
	f.Add(encode(&r, 7), uint32(8), true)
	f.Add(make([]byte, 100), uint32(0), true)
	f.Fuzz(func(t *testing.T, b []byte, seed uint32, repair bool) {
		if repair && len(b) >= RecordSize {
			head := int(binary.LittleEndian.Uint16(b[12:]))
			length := uint64(binary.LittleEndian.Uint32(b[8:]))
			if head >= RecordSize && uint64(head)+length <= uint64(len(b)) {
				binary.LittleEndian.PutUint32(b[4:], Sum(0, b[head:head+int(length)]))
				binary.LittleEndian.PutUint32(b, Sum(seed, b[4:head]))
			}
		}
		var r Record
		if r.Decode(b, seed) != nil {
			return
		}
		again := encode(&r, seed)
		if !bytes.HasPrefix(b, again) {
			t.Errorf("%x decodes to a record that encodes to %x", b, again)
		}
		if r.Decode(b, seed^1) == nil {
			t.Error("the record is valid under two seeds")
		}
	})
}
