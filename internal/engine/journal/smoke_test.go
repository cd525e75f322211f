package journal

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
)

type counter struct{ seq weir.Seq }

func (c *counter) Restore(_ []byte, entries iter.Seq[engine.Header]) error {
	for h := range entries {
		c.seq = max(c.seq, h.Seq)
	}
	return nil
}
func (c *counter) Admit(e *engine.Entry) bool {
	c.seq++
	e.Seq = c.seq
	e.Time = weir.Time(c.seq)
	return true
}
func (c *counter) Commit(int) {}
func (c *counter) Dropped()   {}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	for round := range 3 {
		j, err := Open(disk.OS(dir), Options{SegmentSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		d, err := j.Get(ctx, "a")
		if round == 0 {
			d, err = j.Create(ctx, "a", []byte("x"))
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := j.Open(ctx, d.Created, &counter{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 500 {
					if err := l.Append(ctx, &engine.Entry{Header: engine.Header{Kind: engine.Batch}, Payload: make([]byte, 1000)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		n := 0
		if err := l.Scan(ctx, 0, func(e *engine.Entry) bool { n++; return int(e.Seq) == n }); err != nil {
			t.Fatal(err)
		}
		fmt.Println(n, j.Stats())
		if round == 1 {
			if err := l.Trim(ctx, 7000, []byte("hi")); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
