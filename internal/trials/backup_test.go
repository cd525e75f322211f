package trials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/contract"
)

// weir runs a weir command and returns its output.
func weir(t testing.TB, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program(t), args...)
	tie(cmd)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// books record the acknowledged batches.
type books struct {
	mu     sync.Mutex
	stored map[string]map[int64]string // events, by stream and sequence
	count  int
	wanted int
	enough chan struct{} // closed when count reaches wanted
}

// enter records an acknowledged batch.
func (b *books) enter(id string, seq int64, events string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stored[id] == nil {
		b.stored[id] = map[int64]string{}
	}
	b.stored[id][seq] = events
	if b.count++; b.count == b.wanted {
		close(b.enough)
	}
}

// afterMore returns a channel that is closed when n more batches are recorded.
func (b *books) afterMore(n int) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted, b.enough = b.count+n, make(chan struct{})
	return b.enough
}

// copy returns a copy of the records.
func (b *books) copy() map[string]map[int64]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]map[int64]string{}
	for id, batches := range b.stored {
		all[id] = map[int64]string{}
		for seq, events := range batches {
			all[id][seq] = events
		}
	}
	return all
}

// The test takes backups of a running server while clients publish at full speed. A server that is
// restored from such a backup has every batch that was acknowledged before the backup began, byte
// for byte, and weir check finds no fault in its data.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	r, _ := seeded(t)
	s := serve(t, t.TempDir(), "--rate-live", "0", "--demo=false")
	b := &books{stored: map[string]map[int64]string{}}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	call := &caller{s.url, contract.HTTP1()}
	for range 3 {
		id := contract.NewID()
		if out, status, text := call.ask(ctx, "POST", "/v1/streams", `{"name":"backup","id":"`+id+`"}`, nil); out != done {
			t.Fatalf("create: %d %s", status, text)
		}
		for range 8 {
			own := rand.New(rand.NewPCG(r.Uint64(), 7))
			load.Go(func() {
				for ctx.Err() == nil {
					events := text(own, "b")
					out, status, k := call.publish(ctx, contract.NextPath(id), "", events)
					if out == done {
						b.enter(id, k.Seq, events)
					} else if ctx.Err() == nil {
						t.Errorf("publish: %d", status)
						return
					}
				}
			})
		}
	}
	dir := t.TempDir()
	var before []map[string]map[int64]string
	for i := range 4 {
		select {
		case <-b.afterMore(300): // so that each backup has batches that the last one did not have
		case <-time.After(time.Minute):
			t.Fatal("fewer than 300 batches were published within a minute")
		}
		before = append(before, b.copy())
		if out, err := weir(t, "backup", filepath.Join(dir, fmt.Sprint(i)), "--data", s.data, "--rate", fmt.Sprint(i%2*64)); err != nil {
			t.Fatalf("weir backup: %v: %s", err, out)
		}
	}
	stop()
	load.Wait()
	for i, known := range before {
		checkRestored(t, filepath.Join(dir, fmt.Sprint(i)), known)
	}
}

// checkRestored restores a backup, starts a server on it, and compares its batches with the
// acknowledged ones.
func checkRestored(t *testing.T, file string, known map[string]map[int64]string) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if out, err := weir(t, "restore", file, "--data", data); err != nil {
		t.Fatalf("weir restore: %v: %s", err, out)
	}
	if out, err := weir(t, "check", "--data", data); err != nil {
		t.Fatalf("weir check: %v: %s", err, out)
	}
	s := serve(t, data, "--demo=false", "--rate-live", "0")
	c := &caller{s.url, contract.HTTP1()}
	more := 0
	for id, batches := range known {
		log, _ := c.readAllOf(t, id)
		there := map[int64]string{}
		for _, seen := range log {
			there[seen.seq] = seen.events
		}
		for seq, events := range batches {
			if there[seq] != events {
				t.Fatalf("batch %d of %s: acknowledged %s before the backup, restored %s", seq, id, contract.Shorten(events), contract.Shorten(there[seq]))
			}
		}
		more += len(there) - len(batches)
	}
	t.Logf("backup %s has all acknowledged batches and %d more", filepath.Base(file), more)
	s.stop(t)
	if out, err := weir(t, "check", "--data", data); err != nil {
		t.Errorf("weir check after serving: %v: %s", err, out)
	}
}

// Killing the weir backup process in the middle of a backup does not disturb the server: the next
// backup succeeds.
func TestBackupClientKilled(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--demo=false")
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"large","mode":"raw"}`).ID
	for range 3 {
		c.Post(contract.NextPath(stream), contract.RawBody(bytes.Repeat([]byte("0123456789abcdef"), 4<<16))).Want(202)
	}
	cmd := exec.Command(program(t), "backup", "-", "--data", s.data, "--rate", "1")
	tie(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if text, err := weir(t, "backup", "-", "--data", s.data); err == nil || !strings.Contains(text, "another backup is in progress") {
		t.Errorf("two backups at once: %v: %.100s", err, text)
	}
	cmd.Process.Kill()
	cmd.Wait()
	c.Post(contract.NextPath(stream), contract.RawBody([]byte("after"))).Want(202)
	file := filepath.Join(t.TempDir(), "b")
	for start := time.Now(); ; { // until the server has noticed that the client is gone
		text, err := weir(t, "backup", file, "--data", s.data, "--json")
		var r struct{ Via string }
		if err == nil && json.Unmarshal([]byte(text), &r) == nil && r.Via == "server" {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("weir backup: %v: %s", err, text)
		}
	}
	if !strings.Contains(s.logged(), "backup failed") {
		t.Errorf("the log does not report that the first backup failed:\n%s", s.logged())
	}
}
