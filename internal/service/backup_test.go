package service_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/admin"
	"weir/internal/backup"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// smallJournal returns a new data directory whose journal has segments of this size.
func smallJournal(t *testing.T, size int64) (data string) {
	t.Helper()
	data = t.TempDir()
	if _, err := disk.MakeDir(datadir.Journal(data)); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk.OS(datadir.Journal(data)), journal.Options{SegmentSize: size})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

// chained is a service of which a chain of backups is taken.
type chained struct {
	t       *testing.T
	s       *servicetest.Service
	dir     string
	streams []weir.StreamID
}

// ask sends a request with the key of c.s to the service s, which is c.s itself or was restored
// from its backups.
func (c *chained) ask(s *servicetest.Service, method, path, body string) (int, string) {
	c.t.Helper()
	return ask(c.t, s, c.s.Key, method, "/streams/"+path, body)
}

// content returns all batches of all streams as one text. For each sequence, the text has the
// status of the response, and the batch if there is one.
func (c *chained) content(s *servicetest.Service) string {
	c.t.Helper()
	var all strings.Builder
	for _, id := range c.streams {
		for seq := 1; ; seq++ {
			status, text := c.ask(s, "GET", fmt.Sprintf("%s/batches/%d", id, seq), "")
			if fmt.Fprintln(&all, id, seq, status); status == http.StatusOK {
				all.WriteString(text)
			} else if status == http.StatusNotFound {
				break
			}
		}
	}
	return all.String()
}

// publish adds batches to a stream.
func (c *chained) publish(id weir.StreamID, round int) {
	c.t.Helper()
	for n := range 30 {
		body := fmt.Sprintf(`{"events":["round %d, batch %d: %s"]}`, round, n, strings.Repeat(string(rune('a'+round)), 20_000))
		if status, text := c.ask(c.s, "POST", string(id)+"/publish", body); status != http.StatusAccepted {
			c.t.Fatalf("publish: %d %s", status, text)
		}
	}
}

// takeBackup takes a backup and writes it to the directory c.dir. If the parameter chain is true,
// the backup leaves out the files that earlier backups in c.dir already hold.
func (c *chained) takeBackup(name string, chain bool) *backup.Summary {
	c.t.Helper()
	var since bytes.Buffer
	if chain {
		latest, ignored, err := datadir.Latest(c.dir)
		if err != nil || len(ignored) > 0 {
			c.t.Fatal(ignored, err)
		}
		if err := json.NewEncoder(&since).Encode(latest); err != nil {
			c.t.Fatal(err)
		}
	}
	resp, err := admin.Do(context.Background(), c.s.Data, "POST", "/backup", &since)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.dir, name), content, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	latest, _, err := datadir.Latest(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return latest
}

// startRestored starts a service on the data that a chain of backups restores.
func (c *chained) startRestored(names ...string) *servicetest.Service {
	c.t.Helper()
	data := c.t.TempDir()
	if err := restoreChain(data, names); err != nil {
		c.t.Fatal(err)
	}
	return servicetest.Start(c.t, servicetest.Options{Journal: true, Data: data})
}

func restoreChain(data string, names []string) error {
	chain, err := datadir.OpenChain(names)
	if err != nil {
		return err
	}
	defer chain.Close()
	_, report, err := datadir.Restore(context.Background(), chain.Sources, data)
	if err == nil && len(report.Damages) > 0 {
		err = fmt.Errorf("the restored data is damaged: %+v", report.Damages)
	}
	return err
}

// waitForReclaim waits until the server has freed a sealed segment (a journal file that is
// complete) that a backup holds.
func waitForReclaim(data string, s *backup.Summary) {
	for {
		for _, e := range s.Head.Files {
			if _, err := os.Stat(filepath.Join(data, e.Name)); e.Seal != "" && errors.Is(err, fs.ErrNotExist) {
				return
			}
		}
		<-time.After(time.Millisecond)
	}
}

// TestBackupChain takes a backup after each of several rounds. In these rounds, streams grow, old
// batches are evicted and a stream is deleted. Each backup holds only what is new. A restore of the
// chain gives exactly the state at the newest backup. If a backup is missing, wrong or damaged, the
// restore is refused.
func TestBackupChain(t *testing.T) {
	c := &chained{t: t, dir: t.TempDir()}
	c.s = servicetest.Start(t, servicetest.Options{Journal: true, Data: smallJournal(t, 512<<10)})
	c.streams = []weir.StreamID{
		c.s.NewStream(hub.Spec{Name: "long"}), c.s.NewStream(hub.Spec{Name: "short", MaxBytes: weir.MinMaxBytes}),
	}
	other := filepath.Join(t.TempDir(), "other.tar")
	gone := c.s.NewStream(hub.Spec{Name: "gone"})
	c.publish(gone, 0)
	var first, last *backup.Summary
	var all []*backup.Summary
	for round := range 4 {
		if round == 2 {
			if status, _ := c.ask(c.s, "DELETE", string(gone), ""); status/100 != 2 {
				t.Fatalf("delete: %d", status)
			}
			waitForReclaim(c.s.Data, first)
		}
		for _, id := range c.streams {
			c.publish(id, round)
		}
		want := c.content(c.s)
		got := c.takeBackup(fmt.Sprintf("%d.tar", round), round > 0)
		all = append(all, got)
		if first == nil {
			first, last = got, got
			c.takeBackup("other.tar", false)
			if err := os.Rename(filepath.Join(c.dir, "other.tar"), other); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range got.Head.Files {
			if round > 0 && e.Seal != "" && last.Sums[e.Name] != "" && slices.Contains(last.Head.Files, e) {
				t.Errorf("round %d: %s was copied again", round, e.Name)
			}
		}
		last = got
		next := c.startRestored(c.dir)
		if c.content(next) != want {
			t.Errorf("round %d: the restored service has other batches", round)
		}
		next.Stop()
	}
	if len(last.Head.Links) < 2 {
		t.Fatalf("the newest backup continues %v, want at least two earlier backups", last.Head.Links)
	}
	newest := filepath.Join(c.dir, "3.tar")
	file := func(n int) string { return filepath.Join(c.dir, fmt.Sprintf("%d.tar", n)) }
	refused := func(what string, cause error, says string, names ...string) {
		t.Helper()
		err := restoreChain(t.TempDir(), names)
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Which of the earlier backups are needed depends on how far the server has evicted old batches.
	needed := last.Head.Earlier[0]
	link := last.Head.Links[needed.Link]
	n := slices.IndexFunc(all, func(s *backup.Summary) bool { return s.ID == link.ID })
	taken := link.Taken.Format("2006-01-02T15:04:05Z")
	refused("links are missing", backup.ErrChain, "the backup taken at "+taken, newest)
	refused("a wrong link", backup.ErrChain, "the backup taken at "+taken, other, file((n+1)%3), file((n+2)%3), newest)
	refused("a file that is not needed", backup.ErrChain, newest+" does not continue "+other, file(0), file(1), file(2), other, newest)
	refused("a file that is not needed, in a directory", backup.ErrChain, newest+" does not continue "+other, c.dir, filepath.Dir(other), other)
	if err := restoreChain(t.TempDir(), []string{file(1), file(0), file(0)}); err != nil { // the same file twice is the same as once
		t.Errorf("restore an older state: %v", err)
	}
	damageFile(t, file(n), needed.Name)
	refused("a damaged link", backup.ErrAltered, fmt.Sprint(n, ".tar: "), c.dir)
}

// damageFile changes a bit of a file in a backup.
func damageFile(t *testing.T, archive, name string) {
	t.Helper()
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s in %s: %v", name, archive, err)
		}
		if h.Name != name {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[bytes.Index(content, data)+len(data)/2] ^= 1
		if err := os.WriteFile(archive, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
}
