package service_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// TestScrub flips a bit in a sealed segment (a journal file that is complete) of a running service.
// The scrub, which reads all sealed segments in the background, names the stream and the batch in
// the log and on the overview page, and counts the batch in the metrics. Before the bit is flipped,
// the scrub reports nothing.
func TestScrub(t *testing.T) {
	data := t.TempDir()
	dir := datadir.Journal(data)
	if _, err := disk.MakeDir(dir); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{SegmentSize: 16 << 20}) // the service keeps the segment size of an existing journal
	if err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(data, "password")
	if err := errors.Join(j.Close(), os.WriteFile(password, []byte("correct horse\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s := servicetest.Start(t, servicetest.Options{Journal: true, Data: data, Args: []string{
		"--metrics", "127.0.0.1:0", "--scrub-rate", "1000", "--scrub-every", "1ms", "--admin-password-file", password,
	}})
	stream := string(s.NewStream(hub.Spec{}))
	jar, _ := cookiejar.New(nil)
	client := &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(r *http.Request, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s: %d %s, %v", r.URL, resp.StatusCode, text, err)
		}
		return string(text)
	}
	post := func(path, kind, body string) {
		t.Helper()
		r, err := http.NewRequest("POST", s.HTTP+path, strings.NewReader(body))
		r.Header = http.Header{"Authorization": {"Bearer " + s.Key}, "Content-Type": {kind}}
		ask(r, err)
	}
	for n := range 5 {
		body := fmt.Sprintf(`{"events":["batch number %d %s"]}`, n+1, strings.Repeat("x", 6<<20))
		post("/v1/streams/"+stream+"/publish", "application/json", body)
	}
	metric := func(name string) string {
		t.Helper()
		_, rest, _ := strings.Cut(ask(http.NewRequest("GET", s.Metrics+"/metrics", nil)), "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !done(); <-time.After(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s; the log is\n%s", what, s.Log)
			}
		}
	}
	wait("no segment was scrubbed", func() bool {
		return metric("weir_journal_scrub_bytes_total") != "0" && metric("weir_journal_scrub_completed_timestamp_seconds") != "0"
	})
	post("/dashboard/sign-in", "application/x-www-form-urlencoded", url.Values{"name": {"admin"}, "password": {"correct horse"}}.Encode())
	overview := func() string { return ask(http.NewRequest("GET", s.HTTP+"/dashboard", nil)) }
	if text := overview(); !strings.Contains(text, "No damaged data is known") || strings.Contains(s.Log.String(), "damaged") {
		t.Errorf("a clean journal is reported as damaged:\n%s\n%s", s.Log, text)
	}
	flip(t, filepath.Join(dir, "000000000001.seg"), "batch number 2")
	found := "batch 2 of stream " + stream
	wait("the damage was not found", func() bool { return strings.Contains(s.Log.String(), found) })
	wait("the damage is not in the metrics", func() bool { return metric("weir_journal_damaged_records") == "1" })
	if text := overview(); !strings.Contains(text, found) {
		t.Errorf("the overview does not name the damaged batch:\n%s", text)
	}
}

// flip flips a bit in a file, about 100 bytes after the end of a text.
func flip(t *testing.T, file, after string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, []byte(after)) + len(after) + 100
	if at < 200 {
		t.Fatalf("%s does not contain %q", file, after)
	}
	if _, err := f.WriteAt([]byte{content[at] ^ 4}, int64(at)); err != nil {
		t.Fatal(err)
	}
}
