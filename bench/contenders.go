package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
)

// contenders returns the contenders in the order of the table. The first shows the limit of the
// disk; all others are compared with it.
func contenders(dir string) ([]contender, error) {
	for _, d := range []string{"limit", "growing", "recycling", "journal", "pebble"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	limit, err := newBare(filepath.Join(dir, "limit", "file"), 1<<30)
	if err != nil {
		return nil, err
	}
	growing, err := newBare(filepath.Join(dir, "growing", "file"), 0)
	if err != nil {
		return nil, err
	}
	recycling, err := newJournal(filepath.Join(dir, "recycling"), true)
	if err != nil {
		return nil, err
	}
	j, err := newJournal(filepath.Join(dir, "journal"), false)
	if err != nil {
		return nil, err
	}
	p, err := newPebble(filepath.Join(dir, "pebble"))
	return []contender{limit, growing, recycling, j, p}, err
}

// bare shows the limit of the disk: it appends all waiting payloads to one file with one write and
// one fdatasync. It keeps no checksums and no index, so the payloads cannot be read back.
type bare struct {
	file    *os.File
	zeroed  int64 // bytes that were filled with zeros in advance; 0 if the file grows
	off     int64
	mu      sync.Mutex
	waiting []bareAppend
	wake    chan struct{}
	done    chan struct{}
}

type bareAppend struct {
	payload []byte
	done    chan error
}

var bareDone = sync.Pool{New: func() any { return make(chan error, 1) }}

func newBare(name string, zeroed int64) (*bare, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	b := &bare{file: f, zeroed: zeroed, wake: make(chan struct{}, 1), done: make(chan struct{})}
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < zeroed; off += 1 << 20 {
		if _, err := f.WriteAt(zeros, off); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	go b.loop()
	return b, nil
}

func (b *bare) name() string {
	if b.zeroed > 0 {
		return "limit: preallocated"
	}
	return "bare, growing file"
}

// prepare makes every round start at the beginning of the preallocated file. A file that grows
// starts empty.
func (b *bare) prepare(workload) error {
	b.off = 0
	if b.zeroed > 0 {
		return nil
	}
	if err := b.file.Truncate(0); err != nil {
		return err
	}
	return b.file.Sync()
}

func (b *bare) append(_ int, payload []byte) error {
	done := bareDone.Get().(chan error)
	b.mu.Lock()
	b.waiting = append(b.waiting, bareAppend{payload, done})
	first := len(b.waiting) == 1
	b.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	err := <-done
	bareDone.Put(done)
	return err
}

// loop writes all waiting appends as one group, again and again, until the channel wake is closed.
func (b *bare) loop() {
	defer close(b.done)
	var group []bareAppend
	var buf []byte
	for range b.wake {
		for n := 0; ; runtime.Gosched() { // let writers that are ready to run join the group
			b.mu.Lock()
			m := len(b.waiting)
			b.mu.Unlock()
			if m == n {
				break
			}
			n = m
		}
		b.mu.Lock()
		group, b.waiting = b.waiting, group[:0]
		b.mu.Unlock()
		err := b.write(group, &buf)
		for _, a := range group {
			a.done <- err
		}
	}
}

func (b *bare) write(group []bareAppend, buf *[]byte) error {
	var bufs [][]byte
	*buf = (*buf)[:0]
	length := 0
	for _, a := range group {
		length += len(a.payload)
		if len(a.payload) >= 32<<10 {
			bufs = append(bufs, a.payload)
		} else {
			*buf = append(*buf, a.payload...)
		}
	}
	if len(*buf) > 0 {
		bufs = append(bufs, *buf)
	}
	if length == 0 {
		return nil
	}
	if b.zeroed > 0 && b.off+int64(length) > b.zeroed {
		b.off = 0
	}
	for left := length; left > 0; {
		n, err := unix.Pwritev(int(b.file.Fd()), bufs, b.off)
		if err != nil {
			return err
		}
		if n < left {
			return fmt.Errorf("short write: %d of %d", n, left)
		}
		left -= n
	}
	b.off += int64(length)
	return unix.Fdatasync(int(b.file.Fd()))
}

func (b *bare) close() error {
	close(b.wake)
	<-b.done
	return b.file.Close()
}

// journalContender is Weir's journal as a server uses it: each log has a judge, which decides
// whether an entry is stored, and the journal checks and indexes the entries. The journal is a
// sequence of files, called segments. A recycling journal is in the steady state: it removes old
// entries as new ones arrive, and reuses their segments. A growing journal creates every segment,
// so it writes each one twice, first with zeros.
type journalContender struct {
	j        *journal.Journal
	recycles bool
	payload  func(n int) []byte // content of batch n, for the method fill; nil: zeros
	logs     []engine.Log
	judges   []*numbers
	stop     chan struct{}
	stopped  chan struct{}
}

// keep is roughly the number of bytes that a recycling journal holds.
const keep = 128 << 20

func newJournal(dir string, recycles bool) (*journalContender, error) {
	j, err := journal.Open(disk.OS(dir), journal.Options{})
	return &journalContender{j: j, recycles: recycles, stop: make(chan struct{}), stopped: make(chan struct{})}, err
}

func (o *journalContender) name() string {
	if o.recycles {
		return "journal, recycling"
	}
	return "journal, growing"
}

// prepare opens the logs, and brings a recycling journal into its steady state.
func (o *journalContender) prepare(w workload) error {
	ctx := context.Background()
	if o.logs == nil {
		o.logs, o.judges = make([]engine.Log, w.Streams), make([]*numbers, w.Streams)
		for i := range w.Streams {
			d, err := o.j.Create(ctx, fmt.Sprint(i), nil)
			if err != nil {
				return err
			}
			o.judges[i] = &numbers{}
			if o.logs[i], err = o.j.Open(ctx, d.Created, o.judges[i]); err != nil {
				return err
			}
		}
		if o.recycles {
			go o.trimmer()
		} else {
			close(o.stopped)
		}
		payload := make([]byte, 1<<20)
		for n := int64(0); o.recycles && n < 3*keep; n += int64(len(payload)) {
			if err := o.append(int(n>>20)%w.Streams, payload); err != nil {
				return err
			}
		}
	}
	for o.j.Ready() < 1 {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (o *journalContender) append(stream int, payload []byte) error {
	e := entries.Get().(*engine.Entry)
	e.Header = engine.Header{Kind: engine.Batch, Count: 1, Time: weir.TimeOf(time.Now()), ContentType: "application/octet-stream"}
	e.Payload = payload
	err := o.logs[stream].Append(context.Background(), e)
	entries.Put(e)
	return err
}

var entries = sync.Pool{New: func() any { return new(engine.Entry) }}

// trimmer trims the logs of a recycling journal after every keep/4 bytes.
func (o *journalContender) trimmer() {
	defer close(o.stopped)
	last := uint64(0)
	for {
		select {
		case <-o.stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if n := o.j.Stats().Bytes; n-last >= keep/4 {
			last = n
			o.trim()
		}
	}
}

// trim removes from every log the entries that the log already held four calls of trim ago.
func (o *journalContender) trim() {
	var wg sync.WaitGroup
	for part := range 64 {
		wg.Go(func() {
			for i := part; i < len(o.logs); i += 64 {
				if low := o.judges[i].pass(); low > 0 {
					o.logs[i].Trim(context.Background(), low, nil)
				}
			}
		})
	}
	wg.Wait()
}

func (o *journalContender) close() error {
	close(o.stop)
	if o.logs != nil {
		<-o.stopped
	}
	return o.j.Close()
}

// numbers is a judge that admits every entry and numbers it.
type numbers struct {
	seq    atomic.Uint64
	passes [4]uint64 // last sequence of the log at each of the last four calls of pass, oldest first
}

func (n *numbers) Restore(_ []byte, entries iter.Seq[*engine.Header]) error {
	for h := range entries {
		n.seq.Store(max(n.seq.Load(), uint64(h.Seq)))
	}
	return nil
}

func (n *numbers) Admit(e *engine.Entry) bool {
	e.Seq = weir.Seq(n.seq.Add(1))
	return true
}

// pass records the last sequence of the log, and returns the sequence recorded four calls ago. It
// returns 0 if that sequence equals the one recorded three calls ago: nothing was appended in
// between, so there is nothing new to trim.
func (n *numbers) pass() weir.Seq {
	low := n.passes[0]
	copy(n.passes[:], n.passes[1:])
	n.passes[3] = n.seq.Load()
	if low == n.passes[0] {
		return 0
	}
	return weir.Seq(low)
}

func (n *numbers) Commit(int) {}
func (n *numbers) Dropped()   {}

// pebbles is the key-value store Pebble, with a synced commit for every append.
type pebbles struct {
	db  *pebble.DB
	seq atomic.Uint64
}

func newPebble(dir string) (*pebbles, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	return &pebbles{db: db}, err
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func (p *pebbles) name() string           { return "pebble" }
func (p *pebbles) prepare(workload) error { return nil }
func (p *pebbles) close() error           { return p.db.Close() }

func (p *pebbles) append(stream int, payload []byte) error {
	var key [16]byte
	binary.BigEndian.PutUint64(key[:], uint64(stream))
	binary.BigEndian.PutUint64(key[8:], p.seq.Add(1))
	return p.db.Set(key[:], payload, pebble.Sync)
}
