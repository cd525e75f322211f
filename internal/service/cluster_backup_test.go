package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/admin"
	"weir/internal/hub"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// loadedStream is a stream that nodes publish to while a backup is taken.
type loadedStream struct {
	id weir.StreamID

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
		event := fmt.Sprintf("%s %d %s", l.id, n, strings.Repeat("x", 8<<10))
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

// Two nodes publish to three streams while one of them takes a backup. One of the streams evicts
// batches all the time, and another is deleted during the backup. The backup is restored into a
// journal and into another cluster. Both have every batch that was acknowledged before the backup
// began, the idempotency keys, and the API keys.
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
		l := &loadedStream{id: a.NewStream(spec), acked: map[int64]string{}}
		streams = append(streams, l)
		keyed(a, l.id)
		work.Go(func() { l.publish(t, []*servicetest.Service{a, b}, quit) })
	}
	stop := sync.OnceFunc(func() { close(quit); work.Wait() })
	defer stop()
	for _, l := range streams {
		l.await(t, 20)
	}

	before := []map[int64]string{streams[0].soFar(), streams[1].soFar()}
	resp, err := admin.Do(context.Background(), a.Data, "POST", "/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := ask(t, b, a.Key, "DELETE", "/streams/"+string(streams[2].id), ""); status/100 != 2 {
		t.Errorf("delete: %d %s", status, text)
	}
	content, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	stop()
	file := filepath.Join(t.TempDir(), "backup.tar")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}

	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := restoreChain(dir, []string{file}); err != nil {
			t.Fatal(err)
		}
	}
	single := servicetest.Start(t, servicetest.Options{Journal: true, Data: dirs[0]})
	other := natstest.Start(t, true)
	cluster := startNode(t, other, other.URL, nil)
	migrate(t, cluster, dirs[1])
	for name, s := range map[string]*servicetest.Service{"journal": single, "cluster": cluster} {
		for i, l := range streams[:2] {
			for seq, event := range before[i] {
				status, text := ask(t, s, a.Key, "GET", fmt.Sprintf("/streams/%s/batches/%d", l.id, seq), "")
				if i == 1 && status == http.StatusNotFound && strings.Contains(text, "evicted") {
					continue
				}
				if status != http.StatusOK || !strings.Contains(text, event) {
					t.Errorf("%s: batch %d of stream %d: %d %.100s", name, seq, i, status, text)
				}
			}
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
