package index

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// TestDocumentMap compares a Documents with a plain map. Many values share their beginning and
// end with others, some are longer than 64 KiB, and the keys have more than mostKinds different
// parts before the slash.
func TestDocumentMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var m Documents
	m.Init()
	want := map[string]engine.Document{}
	value := func() []byte {
		switch rng.IntN(10) {
		case 0:
			return bytes.Repeat([]byte{byte(rng.IntN(2))}, 1<<16-2+rng.IntN(4))
		case 1:
			return bytes.Repeat([]byte("ab"), rng.IntN(20))
		}
		return fmt.Appendf(nil, `{"name":%q,"created_at":%d,"mode":"json"}`, strings.Repeat("x", rng.IntN(8)), rng.IntN(1e6))
	}
	for i := range 5000 {
		key := fmt.Sprintf("%d/%d", rng.IntN(10)*rng.IntN(20), rng.IntN(50))
		if rng.IntN(4) == 0 {
			_, had := want[key]
			if d, ok := m.Delete(key); ok != had || ok && d.Key != key {
				t.Fatalf("Delete(%s) = %+v, %v; want %v", key, d, ok, had)
			}
			delete(want, key)
			continue
		}
		d := &Document{Document: engine.Document{Key: key, Value: value(), Created: engine.LogID(i - rng.IntN(2)), Revision: engine.Revision(i)}, First: 3}
		d.At = Extent{Place{1, uint32(i)}, (&segments.Record{Key: key, Payload: d.Value}).Bytes()}
		want[key] = d.Document
		m.Set(d)
		got, ok := m.Get(key)
		if !ok || got.At != d.At || got.First != d.First {
			t.Fatalf("Get(%s) = %+v, %v", key, got, ok)
		}
	}
	keys := slices.Sorted(maps.Keys(want))
	m.Scan(func(key string, d *Document) bool {
		if len(keys) == 0 || key != keys[0] || d.Key != key || !bytes.Equal(d.Value, want[key].Value) || d.Revision != want[key].Revision || d.Created != want[key].Created {
			t.Fatalf("got document %.200q, want %.200q", fmt.Sprint(d.Document), fmt.Sprint(want[key]))
		}
		keys = keys[1:]
		return true
	})
	if len(keys) > 0 {
		t.Errorf("documents %q are missing", keys)
	}
	for key := range want {
		if _, ok := m.Get(key + strings.Repeat("x", 1<<10)); ok {
			t.Fatal("found a document by a longer key")
		}
	}
}

// SortByKey returns every document once and in order, whether it uses one goroutine or two.
func TestSortByKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var m Documents
	m.Init()
	for _, n := range []int{0, 1, 100, manyDocuments, 2*manyDocuments + 1} {
		var docs []ByKey
		var want []string
		for i := range n {
			key := fmt.Sprintf("streams/a shared beginning/%d/%d", rng.IntN(n), i)
			docs, want = append(docs, m.Pack(key, nil, &Document{}).ByKey()), append(want, key)
		}
		slices.Sort(want)
		got := SortByKey(docs)
		if !slices.EqualFunc(got, want, func(d ByKey, key string) bool { return d.Doc.Name() == key }) {
			t.Errorf("%d documents are not in order", n)
		}
	}
}
