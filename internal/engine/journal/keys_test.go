package journal

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// A segment has a key slot for each batch with an idempotency key. The slot holds the digest and
// size of the key, and the number of events in the batch. When a log is opened, the journal reads the
// key slots instead of the records. If key slots are damaged or missing, the journal reads the
// records, with the same result.
func TestKeysOfSegments(t *testing.T) {
	const n, segment = 6000, 1 << 20
	made := faulty.New()
	j, id := keyed(t, made, n, 300)
	want := headersOf(t, j, id)
	if len(want) != n || want[n-1].KeySize != 8 || want[n-1].KeyDigest != (engine.Header{Key: "key 5999"}).Restored().KeyDigest {
		t.Fatalf("%d entries, want %d; the last is %+v", len(want), n, want[len(want)-1])
	}
	j.Close()
	const foot = segment - 64
	number := func(b []byte, at int) int { return int(binary.LittleEndian.Uint32(b[foot+at:])) }
	for name, change := range map[string]func(b []byte, keys, count, index int){
		"as written": nil,
		"a damaged key": func(b []byte, keys, _, _ int) {
			b[keys+100*segments.KeySlotSize+20] ^= 1
		},
		"a damaged directory": func(b []byte, keys, count, _ int) {
			b[keys+count*segments.KeySlotSize+3] ^= 1
		},
		"zeros instead of keys": func(b []byte, keys, _, index int) {
			clear(b[keys:index])
		},
		"written by a version of Weir without key slots": func(b []byte, keys, _, index int) {
			clear(b[keys:index])
			clear(b[foot+40 : foot+52])
			seed := seedOf(t, made, binary.LittleEndian.Uint64(b[8:]))
			binary.LittleEndian.PutUint32(b[foot:], segments.Sum(seed, b[foot+4:foot+64]))
		},
	} {
		fs, sealed := faulty.New(), 0
		for file, b := range made.Files() {
			b = slices.Clone(b)
			if len(b) == segment {
				if count := number(b, 44); string(b[foot+4:foot+8]) == "WEND" && count > 0 {
					if sealed++; change != nil {
						change(b, number(b, 40), count, number(b, 32))
					}
				}
			}
			put(fs, file, b)
		}
		if sealed < 2 {
			t.Fatalf("%d segments have key slots, want at least 2", sealed)
		}
		j, err := Open(fs, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before := fs.Calls(faulty.Read)
		if got := headersOf(t, j, id); !slices.Equal(got, want) {
			t.Errorf("%s: the restored entries differ", name)
		}
		if reads := fs.Calls(faulty.Read) - before; change == nil && reads > n/headItems+2*sealed+2 {
			t.Errorf("%s: opening took %d reads, want at most %d", name, reads, n/headItems+2*sealed+2)
		}
		j.Close()
	}
}

func headersOf(t *testing.T, j *Journal, id engine.LogID) []engine.Header {
	t.Helper()
	judge := &fixed{}
	log, err := j.Open(context.Background(), id, judge)
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	return judge.restored
}

// seedOf returns the seed of a segment.
func seedOf(t *testing.T, fs disk.FS, number uint64) uint32 {
	t.Helper()
	j := newJournal(fs, Options{SegmentSize: defaultSegment})
	if _, err := j.dir.Identify(); err != nil {
		t.Fatal(err)
	}
	defer j.closeAll()
	return j.newSegment(number).Seed
}
