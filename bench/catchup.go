package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/internal/disk"
	"weir/internal/engine/journal"
)

const (
	archivedBatches = 64 << 10 // per stream
	archivedRounds  = 9
)

// archived compares a server that compresses cold segments with one that does not. On each, two
// streams keep JSON events of about 1 KiB, and two others evict theirs, so that the journal copies
// the events of the first two to cold segments. The result shows how fast subscribers receive the
// older half over HTTP, from the memory of the operating system and from the disk. The servers take
// turns, and the figures are medians.
func archived(dir string) ([]figure, error) {
	bin, err := buildWeir(dir)
	if err != nil {
		return nil, err
	}
	names := []string{"not compressed", "compressed"}
	var servers []*target
	for i, name := range names {
		at, err := emptyDir(dir, "archived"+fmt.Sprint(i))
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(at)
		t, err := startArchived(bin, at, name == "compressed")
		if err != nil {
			return nil, err
		}
		defer t.stop()
		servers = append(servers, t)
	}
	time.Sleep(15 * time.Second) // the journals still copy batches
	var figures []figure
	for _, from := range []string{"memory", "disk"} {
		for _, readers := range []int{1, 8} {
			rates := make([][]float64, len(servers))
			for range archivedRounds {
				for i, t := range servers {
					if from == "disk" {
						if err := uncache(filepath.Join(t.data, "journal")); err != nil {
							return nil, err
						}
					}
					rate, err := readArchived(t, readers)
					if err != nil {
						return nil, err
					}
					rates[i] = append(rates[i], rate)
				}
			}
			for i, name := range names {
				slices.Sort(rates[i])
				figures = append(figures, figure{fmt.Sprintf("catch-up over HTTP, cold segments, from %s, %d readers, %s", from, readers, name), rates[i][archivedRounds/2], "batches/s"})
			}
		}
	}
	return figures, nil
}

// startArchived starts a server and fills its streams. The segments are small, so that the journal
// copies batches although it does not have much data.
func startArchived(bin, dir string, compress bool) (*target, error) {
	data := filepath.Join(dir, "data", "journal")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	j, err := journal.Open(disk.OS(data), journal.Options{SegmentSize: 4 << 20, Compress: compress})
	if err != nil {
		return nil, err
	}
	if err := j.Close(); err != nil {
		return nil, err
	}
	t, err := serveWeir(bin, dir, nil, fmt.Sprintf("--compress-cold=%t", compress))
	if err != nil {
		return nil, err
	}
	for _, most := range []int{1 << 30, 1 << 30, 1 << 20, 1 << 20} {
		if err := t.createStreamsOf(1, most); err != nil {
			return t, err
		}
	}
	_, err = t.each(4*archivedBatches, func(i int) []byte {
		return request("POST", t.publishPath(i%4), t.key, slices.Concat([]byte(`{"events":[`), event(i), []byte(`]}`)))
	})
	return t, err
}

// readArchived returns how many batches a second the subscribers receive together.
func readArchived(t *target, readers int) (float64, error) {
	const n = archivedBatches / 2
	var all sync.WaitGroup
	defer all.Wait()
	begin := time.Now()
	for i := range readers {
		s, err := subscribe(t, i%2, "0")
		if err != nil {
			return 0, err
		}
		all.Go(func() { s.read(n); s.conn.Close() })
	}
	all.Wait()
	return float64(readers*n) / time.Since(begin).Seconds(), nil
}
