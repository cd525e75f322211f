package service_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	files "weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

var manyKeys = flag.Int("service.keys", 2000, "keys that TestManyKeys creates within a simulated day")

// A backend creates keys through /manage/v1 all day, each for an hour. When the last one is
// forgotten, memory and disk are as before (D36).
//
// go test ./internal/service -run TestManyKeys -v -timeout 0 -service.keys 1000000 prints the figures
// for a million keys.
func TestManyKeys(t *testing.T) {
	const (
		life      = time.Hour
		forgotten = 2 * time.Hour // how long a key is remembered when its life has ended
		step      = 10 * time.Minute
		steps     = int(24 * time.Hour / step)
	)
	size := int64(64 << 20)
	if *manyKeys <= 100_000 {
		size = 256 << 10 // so that a small number of keys fills several segments too
	}
	j, err := journal.Open(files.OS(t.TempDir()), journal.Options{SegmentSize: size})
	if err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64 // the time that the clock of the service is ahead, in nanoseconds
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	s := servicetest.Start(t, servicetest.Options{Engine: j, Now: clock})
	b := newBackend(t, s)
	if *manyKeys > 100_000 { // fill the log of requests, whose memory is bounded and not about keys
		b.each(100_000, func(int) error { return b.send(http.MethodGet, "/projects", "", nil, http.StatusOK) })
	}
	held, live, disk := len(s.Access.Keys("")), j.Stats().Live, j.Stats().Disk
	before := memory(t)
	report := func(when string) {
		m, d := memory(t), j.Stats()
		mib := func(bytes int64) float64 { return float64(bytes) / (1 << 20) }
		t.Logf("%-14s %6d keys, heap %5.1f MiB, resident %5.1f MiB, segments %6.2f MiB, of that needed %6.2f MiB",
			when, len(s.Access.Keys("")), mib(m.heap), mib(m.resident), mib(d.Disk), mib(d.Live))
	}
	report("before")
	begun, next := time.Now(), 0
	pass := func() {
		ahead.Add(int64(step))
		s.Access.Expire()
		if err := s.Access.Forget(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	for n := range steps {
		first := next
		next = *manyKeys * (n + 1) / steps
		b.each(next-first, func(i int) error { return b.create(first+i, life) })
		pass()
		most = max(most, len(s.Access.Keys("")))
		if n%24 == 23 {
			report(fmt.Sprintf("after %2d hours", (n+1)/6))
		}
	}
	t.Logf("%d keys created in %v, %.0f per second", *manyKeys, time.Since(begun).Round(time.Second), float64(*manyKeys)/time.Since(begun).Seconds())
	if most < *manyKeys/10 || most > *manyKeys/7 { // the keys of three hours of 24
		t.Errorf("at most %d keys were held at a time, want about %d", most, *manyKeys/8)
	}
	for range (life + forgotten) / step {
		pass()
	}
	if n := len(s.Access.Keys("")); n != held {
		t.Errorf("%d keys are left, want %d as before", n, held)
	}
	report("forgotten")
	b.workOn(2 * size)
	isBack := func() bool { // the audit log, which has at most 500 entries about programs, needs more than before
		d := j.Stats()
		return d.Disk <= disk && d.Live <= live+256<<10
	}
	for end := time.Now().Add(2 * time.Minute); !isBack() && time.Now().Before(end); { // the journal frees segments in the background
		<-time.After(50 * time.Millisecond)
	}
	report("after")
	if d := j.Stats(); !isBack() {
		t.Errorf("the journal takes %d KiB, of which it needs %d; want at most %d and about %d as before", d.Disk>>10, d.Live>>10, disk>>10, live>>10)
	}
	if m := memory(t); m.heap > before.heap+8<<20 {
		t.Errorf("the heap has %d MiB, want about %d as before", m.heap>>20, before.heap>>20)
	}
}

// usage is the memory of this process in bytes.
type usage struct{ heap, resident int64 }

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory returns the memory that is still needed. The resident memory is 0 where the system does not
// report it.
func memory(t *testing.T) (u usage) {
	t.Helper()
	for range 3 { // the first collection only marks the elements of a sync.Pool
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap = int64(m.HeapAlloc)
	text, _ := os.ReadFile("/proc/self/status")
	if found := residentLine.FindSubmatch(text); found != nil {
		fmt.Sscan(string(found[1]), &u.resident)
		u.resident <<= 10
	}
	return u
}

// backend is a program with a management token, as in the manual.
type backend struct {
	t      *testing.T
	s      *servicetest.Service
	token  string
	client *http.Client
}

func newBackend(t *testing.T, s *servicetest.Service) *backend {
	t.Helper()
	_, token, err := s.Access.CreateToken(context.Background(), "backend")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	t.Cleanup(transport.CloseIdleConnections)
	return &backend{t, s, token.Reveal(), &http.Client{Transport: transport}}
}

// callers is the number of calls that each makes at once.
const callers = 256

// each calls do n times, up to callers calls at once, and fails the test at the first error.
func (b *backend) each(n int, do func(i int) error) {
	b.t.Helper()
	var group sync.WaitGroup
	var next atomic.Int64
	var fault atomic.Pointer[error]
	for range min(n, callers) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && fault.Load() == nil; i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					fault.Store(&err)
				}
			}
		})
	}
	group.Wait()
	if err := fault.Load(); err != nil {
		b.t.Fatal(*err)
	}
}

// create creates the key with this number, as a backend does for a browser. It repeats one request of
// 100, as a client does that got no response.
func (b *backend) create(number int, life time.Duration) error {
	body := fmt.Appendf(nil, `{"project":%q,"name":"of user %d","permissions":["read"],"revoke_after":%d}`, b.s.Project, number, int(life.Seconds()))
	once := fmt.Sprintf("request-%d", number)
	if err := b.send(http.MethodPost, "/keys", once, body, http.StatusCreated); err != nil || number%100 != 0 {
		return err
	}
	return b.send(http.MethodPost, "/keys", once, body, http.StatusOK)
}

// send sends a request to a path below /manage/v1 and checks the status of the response.
func (b *backend) send(method, path, once string, body []byte, want int) error {
	r, err := http.NewRequest(method, b.s.HTTP+"/manage/v1"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+b.token)
	r.Header.Set("Content-Type", "application/json")
	if once != "" {
		r.Header.Set("Idempotency-Key", once)
	}
	return b.do(r, want)
}

// publish publishes a batch to a raw stream.
func (b *backend) publish(stream weir.StreamID, payload []byte) error {
	r, err := http.NewRequest(http.MethodPost, b.s.HTTP+"/v1/streams/"+string(stream)+"/publish", bytes.NewReader(payload))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+b.s.Key)
	r.Header.Set("Content-Type", "application/octet-stream")
	return b.do(r, http.StatusAccepted)
}

func (b *backend) do(r *http.Request, want int) error {
	resp, err := b.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s: %d %s, want %d", r.Method, r.URL.Path, resp.StatusCode, text, want)
	}
	return err
}

// workOn publishes this many bytes to a stream and deletes it, because the journal frees a segment
// only when it has begun another one.
func (b *backend) workOn(bytes int64) {
	b.t.Helper()
	id := b.s.NewStream(hub.Spec{Mode: weir.Raw, MaxBytes: weir.MinMaxBytes})
	b.each(int(bytes>>17), func(int) error { return b.publish(id, make([]byte, 128<<10)) })
	stream, err := b.s.Hub.Stream(id)
	if err == nil {
		err = stream.Delete(context.Background())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.client.CloseIdleConnections() // each end of a connection has buffers
}
