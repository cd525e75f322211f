package service_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// TestExitWhenReadOnly makes a sync of the journal fail. The service continues to serve reads while
// the disk refuses a test file. When the disk accepts the file, the service reports that it must be
// stopped. A service on the same disk then starts and accepts writes.
func TestExitWhenReadOnly(t *testing.T) {
	fs := faulty.New()
	start := func(grace string) *servicetest.Service {
		j, err := journal.Open(fs, journal.Options{SegmentSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return servicetest.Start(t, servicetest.Options{Engine: j, Args: []string{"--exit-when-read-only", grace}})
	}
	s := start("20ms")
	stream := string(s.NewStream(hub.Spec{}))
	ask := func(s *servicetest.Service, method, path string) int {
		t.Helper()
		status, _ := ask(t, s, s.Key, method, "/streams/"+path, `{"events":[1]}`)
		return status
	}
	publish := stream + "/publish"
	if got := ask(s, "POST", publish); got != 202 {
		t.Fatalf("publish: %d", got)
	}
	away := s.Data + ".away"
	if err := os.Rename(s.Data, away); err != nil { // now the service cannot create its test file
		t.Fatal(err)
	}
	defer os.RemoveAll(away)
	fs.FailCall(faulty.Sync, 1, syscall.EIO)
	if got := ask(s, "POST", publish); got != 503 {
		t.Fatalf("publish after a failed sync: %d", got)
	}
	for !strings.Contains(s.Log.String(), "the disk still refuses writes") {
		select {
		case err := <-s.Failed():
			t.Fatalf("exit while the disk refuses writes: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if got := ask(s, "GET", stream); got != 200 {
		t.Fatalf("read: %d", got)
	}
	if err := os.Rename(away, s.Data); err != nil {
		t.Fatal(err)
	}
	if err := <-s.Failed(); !errors.Is(err, engine.ErrReadOnly) || !errors.Is(err, syscall.EIO) {
		t.Errorf("the service ended with %v, want ErrReadOnly and EIO", err)
	}
	if _, err := os.Stat(s.Data + "/probe.tmp"); !os.IsNotExist(err) {
		t.Errorf("the test file was not removed: %v", err)
	}
	s.Stop()
	if next := start("0"); ask(next, "POST", publish) != 202 {
		t.Error("a restart did not cure the store")
	}
}
