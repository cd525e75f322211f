package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/admin"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// loadedStream is a stream that nodes publish to while a backup is taken.
type loadedStream struct {
	id   weir.StreamID
	size int // of the events, in bytes

	mu    sync.Mutex
	acked map[int64]string // event of each acknowledged batch, by its sequence
}

// publish publishes batches until the channel quit is closed. It sends them to the nodes in turn.
func (l *loadedStream) publish(t *testing.T, nodes []*servicetest.Service, quit <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-quit:
			return
		default:
		}
		event := fmt.Sprintf("%s %d %s", l.id, n, strings.Repeat("x", l.size))
		status, text := ask(t, nodes[n%len(nodes)], nodes[0].Key, "POST", "/streams/"+string(l.id)+"/publish", `{"events":["`+event+`"]}`)
		var ack struct{ Seq int64 }
		switch {
		case status == http.StatusNotFound:
			return // the stream was deleted
		case status != http.StatusAccepted || json.Unmarshal([]byte(text), &ack) != nil:
			t.Errorf("publish: %d %s", status, text)
			return
		}
		l.mu.Lock()
		l.acked[ack.Seq] = event
		l.mu.Unlock()
	}
}

// soFar returns the batches that are acknowledged now.
func (l *loadedStream) soFar() map[int64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[int64]string{}
	for seq, event := range l.acked {
		all[seq] = event
	}
	return all
}

// await waits until this many batches are acknowledged.
func (l *loadedStream) await(t *testing.T, batches int) {
	t.Helper()
	within := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(l.soFar()) < batches {
		select {
		case <-tick.C:
		case <-within:
			t.Fatal("the nodes published too little within a minute")
		}
	}
}

// takeBackup takes a backup through a node and restores it into two directories. It calls meanwhile
// before it reads the backup.
func takeBackup(t *testing.T, node *servicetest.Service, meanwhile func()) (dirs [2]string) {
	t.Helper()
	resp, err := admin.Do(context.Background(), node.Data, "POST", "/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	meanwhile()
	content, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup.tar")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range dirs {
		dirs[i] = t.TempDir()
		if err := restoreChain(dirs[i], []string{file}); err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

// noted is a judge that looks only for the note of the last trim.
type noted struct {
	engine.Judge
	note []byte
}

func (n *noted) Restore(note []byte, _ iter.Seq[*engine.Header]) error { n.note = note; return nil }

// wasTrimmed reports whether evicted batches were trimmed from the log of a restored stream.
func wasTrimmed(t *testing.T, dir string, id weir.StreamID) bool {
	t.Helper()
	j, err := journal.Open(disk.OS(datadir.Journal(dir)), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	doc, err := j.Get(t.Context(), "stream/"+string(id))
	if err != nil {
		t.Fatal(err)
	}
	judge := &noted{}
	l, err := j.Open(t.Context(), doc.Created, judge)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return judge.note != nil
}

// checkEvicting checks a restored stream that evicted batches while the backup was taken. From some
// batch on, it has all of them.
func (l *loadedStream) checkEvicting(t *testing.T, name string, s *servicetest.Service, key string, before map[int64]string) {
	t.Helper()
	_, text := ask(t, s, key, "GET", "/streams/"+string(l.id), "")
	var got weir.Stream
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	newest := slices.Max(slices.Collect(maps.Keys(before)))
	if int64(got.Cursor) < newest || got.BytesStored > weir.MinMaxBytes {
		t.Errorf("%s: cursor %d, %d bytes; want at least %d, and at most %d bytes", name, got.Cursor, got.BytesStored, newest, weir.MinMaxBytes)
	}
	all, evicted, kept := l.soFar(), 0, 0
	for seq := int64(2); seq <= int64(got.Cursor); seq++ { // the first batch was published with a key
		status, text := ask(t, s, key, "GET", fmt.Sprintf("/streams/%s/batches/%d", l.id, seq), "")
		switch {
		case kept == 0 && status == http.StatusNotFound && strings.Contains(text, "evicted"):
			evicted++
		case status == http.StatusOK && strings.Contains(text, all[seq]):
			kept++
		default:
			t.Errorf("%s: batch %d of a stream that evicts: %d %.100s, after %d that are kept", name, seq, status, text, kept)
		}
	}
	if evicted == 0 || kept == 0 {
		t.Errorf("%s: %d batches were evicted, and %d are kept; want some of both", name, evicted, kept)
	}
}

// Two nodes publish to three streams while one of them takes a backup. One of the streams evicts a
// batch with every publish, and another is deleted before the backup has been read. The backup is
// restored into a journal and into another cluster. Both have every batch that was acknowledged
// before the backup began and not evicted, the idempotency keys, and the API keys.
func TestBackupCluster(t *testing.T) {
	nats := natstest.Start(t, true)
	a := startNode(t, nats, nats.URL, nil)
	b := startNode(t, nats, nats.URL, nil)
	keyed := func(s *servicetest.Service, id weir.StreamID) string {
		t.Helper()
		h := http.Header{"Authorization": {"Bearer " + a.Key}, "Content-Type": {"application/json"}, "Idempotency-Key": {"the-key"}}
		_, text := request(t, "POST", s.HTTP+"/v1/streams/"+string(id)+"/publish", `{"events":["keyed"]}`, h)
		return text
	}
	var streams []*loadedStream
	var work sync.WaitGroup
	quit := make(chan struct{})
	for _, spec := range []hub.Spec{{Name: "kept"}, {Name: "evicts", MaxBytes: weir.MinMaxBytes}, {Name: "deleted"}} {
		l := &loadedStream{id: a.NewStream(spec), size: 8 << 10, acked: map[int64]string{}}
		if spec.MaxBytes > 0 {
			l.size = weir.MinMaxBytes / 10
		}
		streams = append(streams, l)
		keyed(a, l.id)
		work.Go(func() { l.publish(t, []*servicetest.Service{a, b}, quit) })
	}
	stop := sync.OnceFunc(func() { close(quit); work.Wait() })
	defer stop()
	for _, l := range streams {
		l.await(t, 20)
	}

	// The nodes trim what they evict once per second, so the first backups may come too early.
	for within := time.Now().Add(time.Minute); !wasTrimmed(t, takeBackup(t, a, func() {})[0], streams[1].id); {
		if time.Now().After(within) {
			t.Fatal("no batch was trimmed within a minute")
		}
	}

	before := []map[int64]string{streams[0].soFar(), streams[1].soFar()}
	dirs := takeBackup(t, a, func() {
		if status, text := ask(t, b, a.Key, "DELETE", "/streams/"+string(streams[2].id), ""); status/100 != 2 {
			t.Errorf("delete: %d %s", status, text)
		}
	})
	stop()
	if !wasTrimmed(t, dirs[0], streams[1].id) {
		t.Error("the backup has no trim of the stream that evicts batches")
	}
	single := servicetest.Start(t, servicetest.Options{Journal: true, Data: dirs[0]})
	other := natstest.Start(t, true)
	cluster := startNode(t, other, other.URL, nil)
	migrate(t, cluster, dirs[1])
	for name, s := range map[string]*servicetest.Service{"journal": single, "cluster": cluster} {
		for seq, event := range before[0] {
			status, text := ask(t, s, a.Key, "GET", fmt.Sprintf("/streams/%s/batches/%d", streams[0].id, seq), "")
			if status != http.StatusOK || !strings.Contains(text, event) {
				t.Errorf("%s: batch %d: %d %.100s", name, seq, status, text)
			}
		}
		streams[1].checkEvicting(t, name, s, a.Key, before[1])
		for _, l := range streams[:2] {
			if text := keyed(s, l.id); !strings.Contains(text, `"duplicate":true`) {
				t.Errorf("%s: a repeated idempotency key got %s", name, text)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(a.Data, "backup.tmp")); !os.IsNotExist(err) {
		t.Errorf("the backup left files on the node: %v", err)
	}
}

// migrate copies a data directory into the cluster of a node.
func migrate(t *testing.T, node *servicetest.Service, from string) {
	t.Helper()
	body, err := json.Marshal(admin.NewMigration{From: from})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := admin.Do(context.Background(), node.Data, "POST", "/migrate", bytes.NewBuffer(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var m admin.Migration
		if err := lines.Decode(&m); err != nil || m.Error != "" {
			t.Fatalf("migrate: %v %s", err, m.Error)
		}
		if m.Done {
			return
		}
	}
}
