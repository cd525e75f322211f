package service_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/faultnet"
	"weir/internal/hub"
	"weir/internal/service"
	"weir/internal/service/servicetest"
	"weir/internal/settings"
)

// smallDisk mounts a disk of 32 MiB on a new data directory.
func smallDisk(t *testing.T) (data string, d *faultnet.Disk) {
	t.Helper()
	data, err := os.MkdirTemp("", "weir-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	if d, err = faultnet.MountDisk(data, 32); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return data, d
}

// The disk of a node that runs alone fills up, until the NATS server of the node stops storing data.
// When the disk has space again, the node accepts batches by itself, and has all earlier ones.
func TestFullDiskOfNode(t *testing.T) {
	data, d := smallDisk(t)
	s := servicetest.Start(t, servicetest.Options{Journal: true, Data: data, Args: []string{"--engine", "nats", "--cluster-listen", "127.0.0.1:0"}})
	stream := "/streams/" + string(s.NewStream(hub.Spec{}))
	publish := func() int {
		status, _ := ask(t, s, s.Key, "POST", stream+"/1", `{"events":["kept"]}`)
		return status
	}
	health := func() int { status, _ := ask(t, s, s.Key, "GET", "/health", ""); return status }
	until := func(what string, done func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for late := time.Now().Add(2 * time.Minute); !done(); <-tick.C {
			if time.Now().After(late) {
				t.Fatal("did not happen: " + what)
			}
		}
	}
	if status := publish(); status != http.StatusAccepted {
		t.Fatalf("publish: %d", status)
	}
	if err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	until("the node is not ready", func() bool { return health() == http.StatusServiceUnavailable })
	if status, text := ask(t, s, s.Key, "POST", stream+"/2", `{"events":["refused"]}`); status != http.StatusServiceUnavailable {
		t.Errorf("publish on a full disk: %d %s", status, text)
	}
	// Every read of a cursor writes a small message, until the last block of the disk is used up.
	until("the NATS server has stopped", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP+"/v1"+stream, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Key)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
		return strings.Contains(s.Log.String(), "has stopped storing data")
	})
	if err := d.Free(); err != nil {
		t.Fatal(err)
	}
	until("the node is ready again", func() bool { return health() == http.StatusOK })
	until("the node has the first batch", func() bool { return publish() == http.StatusOK })
	until("the node accepts a batch", func() bool {
		status, _ := ask(t, s, s.Key, "POST", stream+"/2", `{"events":["next"]}`)
		return status == http.StatusAccepted || status == http.StatusOK
	})
}

// The first start of a node whose disk is nearly full shows no secrets that were not stored, and says
// that they were not. When the disk has space, the next start creates and shows them.
func TestFirstStartOnAFullDisk(t *testing.T) {
	data, _ := smallDisk(t)
	start := func() (secret []string, log string) {
		t.Helper()
		parsed, err := settings.Parse("--data", data, "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--demo=false",
			"--engine", "nats", "--cluster-listen", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var logged servicetest.Log
		svc, err := service.Start(context.Background(), service.Options{Settings: parsed, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		svc.Welcome(&out)
		if err := svc.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		return secrets.FindAllString(out.String(), -1), logged.String()
	}
	filler := filepath.Join(data, "filler")
	if err := os.WriteFile(filler, make([]byte, 26<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	secret, log := start()
	if len(secret) > 0 || !strings.Contains(log, "its key were not created") || !strings.Contains(log, "its password was not stored") {
		t.Errorf("on a full disk: %d secrets were shown, want none; the log says %s", len(secret), log)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if secret, log = start(); len(secret) != 4 { // the key three times and the password once
		t.Errorf("with space: %d secrets were shown, want 4; the log says %s", len(secret), log)
	}
}

// A gap stays open while the disk is full, also for publishers that send plain sequence numbers and
// come back long after the grace of the gap (D4). The clock of the service stands still except for
// one step, so a slow machine changes nothing.
func TestGapOnAFullDisk(t *testing.T) {
	disk := servicetest.NewDisk()
	begun, later := time.Now(), atomic.Int64{}
	s := servicetest.Start(t, servicetest.Options{Engine: disk, Args: []string{"--gap-grace", "50ms"}, Now: func() time.Time { return begun.Add(time.Duration(later.Load())) }})
	stream := "/streams/" + string(s.NewStream(hub.Spec{}))
	want := func(seq string, want int) {
		t.Helper()
		if status, text := ask(t, s, s.Key, "POST", stream+"/"+seq, `{"events":["`+seq+`"]}`); status != want {
			t.Fatalf("batch %s: %d %s, want %d", seq, status, text, want)
		}
	}
	want("1", http.StatusAccepted)
	want("3", http.StatusAccepted)
	disk.SetFull(func(payload []byte) bool { return len(payload) > 0 }) // the entry that closes a gap would still fit
	want("2", http.StatusServiceUnavailable)
	later.Store(int64(time.Hour))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 30 { // several times the grace; no publish, because a refused one restarts the grace
		<-tick.C
	}
	want("2", http.StatusServiceUnavailable)
	disk.SetFull(nil)
	for _, seq := range []string{"2", "5", "4"} {
		want(seq, http.StatusAccepted)
	}
}
