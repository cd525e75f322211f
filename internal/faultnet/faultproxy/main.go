// Command faultproxy runs a fault proxy as a process, for tests of clients that are not written in
// Go. It reads one JSON object per line from standard input and answers each with one line:
//
//	{"start":{"Backend":"127.0.0.1:8080","HTTP":true}}  → {"address":"127.0.0.1:41234"}
//	{"set":{"rate":40000}}                              → {}
//	{"reset":true}                                      → {}
//	{"backend":"127.0.0.1:8081"}                        → {}
//	{"play":{"seed":7,"steps":5}}                       → {} after the last step
//	{"count":true}                                      → {"opened":2,"sent":1234}
//	{"disk":"/tmp/x"}                                   → {"mounted":true}
//	{"fill":true}                                       → {}
//
// {"disk":…} mounts a small disk at an existing directory, and creates a data directory on it, which
// is called "data". The journal there has small segments, so that the server refuses batches soon
// after {"fill":true}. If this process may not mount, the answer is {}. The disk is unmounted when
// standard input ends.
//
// The proxy ends when its standard input ends, and after an error, which it answers with
// {"error":"…"}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/faultnet"
)

// command is a line of input. Exactly one of its members is set.
type command struct {
	Start   *faultnet.Options
	Set     *faultnet.Conditions
	Reset   bool
	Backend string
	Play    *struct {
		Seed  uint64
		Steps int
	}
	Count bool
	Disk  string
	Fill  *bool // false frees the disk again
}

// answer is a line of output.
type answer struct {
	Address string `json:"address,omitempty"`
	Mounted bool   `json:"mounted,omitempty"`
	Opened  int    `json:"opened,omitempty"`
	Sent    int64  `json:"sent,omitempty"`
	Error   string `json:"error,omitempty"`
}

func main() { run(os.Stdin, os.Stdout) }

func run(in io.Reader, out io.Writer) {
	r, w := json.NewDecoder(in), json.NewEncoder(out)
	var t session
	defer t.close()
	for {
		var c command
		err := r.Decode(&c)
		if err == io.EOF {
			return
		}
		var a answer
		if err == nil {
			a, err = t.do(c)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if w.Encode(a) != nil || err != nil {
			return // after malformed JSON, the beginning of the next command cannot be found
		}
	}
}

// session holds the proxy once it is started.
type session struct {
	p    *faultnet.Proxy
	o    faultnet.Options
	disk *faultnet.Disk
}

func (t *session) close() {
	if t.disk != nil {
		t.disk.Close()
	}
	if t.p != nil {
		t.p.Close()
	}
}

// segment is the size of a segment, which is a file of the journal, in bytes. It is small, so that
// a server on a full disk soon has no space left in its files.
const segment = 256 << 10

// create creates an empty journal.
func create(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{SegmentSize: segment})
	if err != nil {
		return err
	}
	return j.Close()
}

func (t *session) do(c command) (a answer, err error) {
	switch {
	case c.Start != nil && t.p == nil:
		t.o = *c.Start
		if t.p, err = faultnet.Start(t.o); err == nil {
			a.Address = t.p.Address()
		}
	case c.Disk != "" && t.disk == nil:
		if t.disk, err = faultnet.MountDisk(c.Disk, 6); err != nil {
			return a, nil
		}
		a.Mounted, err = true, create(filepath.Join(c.Disk, "data", "journal"))
	case c.Fill != nil && t.disk != nil:
		if *c.Fill {
			return a, t.disk.Fill()
		}
		return a, t.disk.Free()
	case t.p == nil:
		err = errors.New("the proxy is not started")
	case c.Set != nil:
		t.p.Set(*c.Set)
	case c.Reset:
		t.p.Reset()
	case c.Backend != "":
		t.p.SetBackend(c.Backend)
	case c.Play != nil:
		t.p.Play(context.Background(), faultnet.Schedule(c.Play.Seed, c.Play.Steps, t.o.HTTP, t.o.UDP))
	case c.Count:
		a.Opened, a.Sent = t.p.Opened(), t.p.Sent()
	default:
		err = errors.New("unknown command")
	}
	return a, err
}
