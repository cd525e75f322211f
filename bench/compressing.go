package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
)

// compressing appends JSON events of about 1 KiB to 8 streams. Four of the streams keep all their
// events, and the journal copies these to cold segments. compressing does all this twice, without
// and with compression. The result shows how much smaller compressed segments are, and how fast one
// subscriber reads the older half of a stream, from the disk and from the memory of the operating
// system.
func compressing(dir string) (figures []figure, err error) {
	for _, compress := range []bool{false, true} {
		more, err := compressingOnce(dir, compress)
		if err != nil {
			return nil, err
		}
		figures = append(figures, more...)
	}
	return figures, nil
}

func compressingOnce(dir string, compress bool) ([]figure, error) {
	const streams, batches, segment = 8, 512 << 10, 4 << 20
	name := "not compressed"
	if compress {
		name = "compressed"
	}
	dir, err := emptyDir(dir, "compressing")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	o, err := openJournal(disk.OS(dir), journal.Options{SegmentSize: segment, Compress: compress}, streams)
	if err != nil {
		return nil, err
	}
	defer o.j.Close()
	o.payload = event
	err = o.fill(batches, 0, func(stream int, seq weir.Seq) error {
		if stream%2 == 0 || seq%100 > 0 || seq <= 1000 {
			return nil
		}
		return o.logs[stream].Trim(context.Background(), seq-1000, nil)
	})
	if err != nil {
		return nil, err
	}
	atRest(o.j)
	var figures []figure
	if compress {
		ratio, err := compression(dir, segment)
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{"size of cold segments with JSON events / compressed size", ratio, ""})
	}
	for _, from := range []string{"disk", "memory"} {
		best, single := 0.0, 0.0
		for range 7 {
			if from == "disk" {
				if err := uncache(dir); err != nil {
					return nil, err
				}
			}
			rate, took, err := readCold(o.logs[0], batches/streams/2, from == "memory")
			if err != nil {
				return nil, err
			}
			if best = max(best, rate); single == 0 || took < single {
				single = took
			}
		}
		figures = append(figures, figure{fmt.Sprintf("catch-up over cold segments, %s, from %s", name, from), best, "MB/s"})
		if from == "memory" {
			figures = append(figures, figure{fmt.Sprintf("  read of one batch, %s", name), single, "µs"})
		}
	}
	return figures, nil
}

// compression returns how much smaller the compressed segments are. It recognises them by their
// sizes, which are not multiples of 4096, unlike those of other segments.
func compression(dir string, segment int64) (float64, error) {
	files, err := os.ReadDir(dir)
	var content, stored int64
	for _, f := range files {
		if info, err := f.Info(); err == nil && strings.HasSuffix(f.Name(), ".seg") && info.Size()%4096 != 0 {
			content, stored = content+segment, stored+info.Size()
		}
	}
	return float64(content) / float64(stored), err
}

// readCold reads the first batches of a log as a subscriber does, and returns the rate in MB/s. If
// single is true, it also reads single batches, and returns the time for one in microseconds.
func readCold(l engine.Log, batches int, single bool) (rate, took float64, err error) {
	ctx, run := context.Background(), 24<<10
	begin, bytes := time.Now(), 0
	for next := weir.Seq(1); next <= weir.Seq(batches); {
		got := 0
		err := l.Scan(ctx, next, run, func(e *engine.Entry) bool {
			got, next = got+len(e.Payload), e.Seq+1
			return got < run
		})
		if err != nil {
			return 0, 0, err
		}
		bytes += got
	}
	rate = float64(bytes) / 1e6 / time.Since(begin).Seconds()
	const gets = 5000
	begin = time.Now()
	for range gets {
		if !single {
			break
		}
		if _, err := l.Read(ctx, weir.Seq(1+rand.IntN(batches))); err != nil {
			return 0, 0, err
		}
	}
	return rate, time.Since(begin).Seconds() * 1e6 / gets, nil
}

// uncache makes the kernel forget the files of a directory.
func uncache(dir string) error {
	fs := disk.OS(dir)
	names, err := fs.List()
	for _, name := range names {
		if f, err := fs.Open(name); err == nil {
			disk.Uncache(f)
			f.Close()
		}
	}
	return err
}

// event returns a JSON event of about 1 KiB.
func event(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	word := func() string {
		return []string{"order", "created", "payment", "shipping", "customer", "invoice", "product", "checkout", "session", "refund",
			"warehouse", "delivery", "express", "standard", "priority", "pending", "completed", "failed", "review", "approved"}[r.IntN(20)]
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"id":"%08x-%04x-4%03x-%04x-%012x","type":"%s.%s","time":"2026-11-17T%02d:%02d:%02d.%03dZ","source":"/shops/%d/orders","subject":"customer-%d",`,
		r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), r.IntN(1<<16), r.Int64N(1<<48), word(), word(), n/3600000%24, n/60000%60, n/1000%60, n%1000, r.IntN(50), r.IntN(100000))
	fmt.Fprintf(&b, `"data":{"order_id":%d,"currency":"EUR","amount":%.2f,"items":[`, 1000000+n, r.Float64()*500)
	for b.Len() < 900 {
		fmt.Fprintf(&b, `{"sku":"%s-%05d","name":"%s %s %s","quantity":%d,"price":%.2f,"discount":%t},`,
			word()[:3], r.IntN(100000), word(), word(), word(), 1+r.IntN(5), r.Float64()*100, r.IntN(4) == 0)
	}
	fmt.Fprintf(&b, `{}],"status":"%s","address":{"city":"Berlin","zip":"%05d","street":"%s street %d"}}}`, word(), r.IntN(100000), word(), r.IntN(200))
	return []byte(b.String())
}
