package trials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	core "weir"
	"weir/client"
	"weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/faultnet"
)

// smallDisk mounts a small disk with a data directory, and returns the disk and the data directory.
// The journal has small segments, so that little data fills the disk. smallDisk returns nil if this
// process may not mount.
func smallDisk(t *testing.T) (*faultnet.Disk, string) {
	t.Helper()
	dir := t.TempDir()
	d, err := faultnet.MountDisk(dir, 6)
	if err != nil {
		t.Logf("no schedule fills the disk, because no small disk can be mounted: %v", err)
		return nil, ""
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	at := filepath.Join(dir, "data", "journal")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk.OS(at), journal.Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return d, filepath.Join(dir, "data")
}

// fill fills the disk, so that the server refuses batches, and makes space again after a while. It
// reports whether the server refused one of the batches that fill published.
func (s *scheduled) fill(ctx context.Context, t *testing.T, hold time.Duration) bool {
	c := newGoClient(t, client.Options{URL: s.url, Key: liveKey, HTTP1: true, Retry: time.Minute})
	burnt, err := c.CreateStream(ctx, client.NewStream{Name: "fill", Mode: core.Raw})
	if err != nil {
		t.Errorf("create a stream to fill the disk: %v", err)
		return false
	}
	if err := s.disk.Fill(); err != nil {
		t.Error(err)
	}
	// The server accepts batches until the space that is left in the files of its journal is used up.
	once := newGoClient(t, client.Options{URL: s.url, Key: liveKey, HTTP1: true, Retry: -1})
	refused := false
	for n := 0; n < 1000 && !refused && ctx.Err() == nil; n++ {
		_, err := once.Publish(ctx, burnt.ID, client.Bytes(make([]byte, 4<<10)))
		if err != nil && client.CodeOf(err) != core.StorageUnavailable {
			break // the server was killed, or limits the rate
		}
		refused = err != nil
	}
	wait(ctx, hold)
	if err := s.disk.Free(); err != nil {
		t.Error(err)
	}
	if err := c.DeleteStream(ctx, burnt.ID); err != nil && client.CodeOf(err) != core.StreamNotFound {
		t.Errorf("delete the stream that filled the disk: %v", err)
	}
	return refused
}

// longestWindow is the longest time, in seconds, that a schedule waits for the end of a rate window.
const longestWindow = 15

// limit lowers the rate limit of the key to a little more than what the key has used, and restores
// the limit after a while. It does nothing unless the current window of the rate limit ends soon,
// because clients wait for that end. It reports whether it lowered the limit.
func (s *scheduled) limit(ctx context.Context, t *testing.T, r *rand.Rand, hold time.Duration) bool {
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/streams", nil)
	if err != nil {
		t.Error(err)
		return false
	}
	req.Header.Set("Authorization", "Bearer "+liveKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false // the server was killed
	}
	resp.Body.Close()
	var fields [3]int64
	for i, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		if fields[i], err = strconv.ParseInt(resp.Header.Get(name), 10, 64); err != nil {
			t.Errorf("%s: %v", name, err)
			return false
		}
	}
	if fields[2]-time.Now().Unix() > longestWindow {
		return false
	}
	s.reload(t, fmt.Sprintf("rate-live = %d\n", fields[0]-fields[1]+1+r.Int64N(60)))
	wait(ctx, hold)
	s.reload(t, "")
	return true
}

// reload makes the server read this configuration.
func (s *scheduled) reload(t *testing.T, config string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		t.Error(err)
	}
	s.cmd.Process.Signal(syscall.SIGHUP)
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
