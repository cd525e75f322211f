package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const crashKey = "svc_live_00112233445566778899aabbccddeeff"

// crashing is a server that is killed and started again on the same address.
type crashing struct {
	t       *testing.T
	program string
	data    string
	addr    string
	cmd     *exec.Cmd
}

func (s *crashing) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "serve", "--data", s.data, "--http", s.addr, "--https", "off", "--metrics", "off", "--demo=false", "--log-format", "json", "--bootstrap-keys", "a:"+crashKey)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	r := bufio.NewReader(stderr)
	var log strings.Builder
	for {
		line, err := r.ReadString('\n')
		log.WriteString(line)
		if m := readyLine.FindStringSubmatch(line); m != nil {
			s.addr = m[2]
			go io.Copy(io.Discard, r)
			return
		}
		if err != nil {
			s.t.Fatalf("serve: %v\n%s", err, log.String())
		}
	}
}

func (s *crashing) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// client returns a weir command that talks to the server.
func (s *crashing) client(args ...string) *exec.Cmd {
	c := exec.Command(s.program, args...)
	c.Env = append(os.Environ(), "WEIR_URL=http://"+s.addr, "WEIR_KEY="+crashKey, "GORACE=atexit_sleep_ms=0")
	return c
}

// The test kills the server several times while weir publish reads its input. Every event is stored
// once and in order. A weir tail that runs all the time prints exactly the stored events.
func TestPublishAndTailThroughCrashes(t *testing.T) {
	const n, crashes = 60_000, 5
	program, err := exec.LookPath("weir")
	if err != nil {
		t.Fatal(err)
	}
	s := &crashing{t: t, program: program, data: filepath.Join(t.TempDir(), "data"), addr: "127.0.0.1:0"}
	s.start()
	defer func() { s.kill() }()
	id, err := s.client("stream", "create", "numbers").Output()
	if err != nil {
		t.Fatal(err)
	}
	stream := strings.TrimSpace(string(id))

	tail := s.client("tail", stream, "--cursor", "0")
	var tailErrs, publishOut bytes.Buffer
	tail.Stderr = &tailErrs
	printed, err := tail.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	publish := s.client("publish", stream, "--batch-events", "20", "--in-flight", "32")
	publish.Stdout, publish.Stderr = &publishOut, &publishOut
	in, err := publish.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{tail, publish} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer c.Process.Kill()
	}
	w := bufio.NewWriter(in)
	live := make([]byte, 0, 8*n)
	for i := 1; i <= n; i++ {
		fmt.Fprintln(w, i)
		if i == 20 { // both commands have found the server; without one, they give up at their first attempt
			w.Flush()
			live = live[:len("1\n")]
			if _, err := io.ReadFull(printed, live); err != nil {
				t.Fatalf("weir tail: %v\n%s%s", err, &tailErrs, &publishOut)
			}
		}
		if i%(n/(crashes+1)) == 0 && i < n { // at this moment events are in the pipe, in the publisher and in flight
			s.kill()
			s.start()
		}
	}
	w.Flush()
	in.Close()
	if err := publish.Wait(); err != nil {
		t.Fatalf("weir publish: %v\n%s", err, &publishOut)
	}
	if want := fmt.Sprintf("%d events stored", n); !strings.Contains(publishOut.String(), want) {
		t.Errorf("the output of weir publish lacks %q:\n%s", want, &publishOut)
	}

	want := numbers(n)
	got, err := s.client("tail", stream, "--cursor", "0", "--follow=false").Output()
	if err != nil || string(got) != want {
		t.Errorf("stored events: %s, %v", differ(string(got), want), err)
	}
	head := len(live)
	live = live[:len(want)]
	if _, err := io.ReadFull(printed, live[head:]); err != nil || string(live) != want {
		t.Errorf("tailed events: %s, %v\n%s", differ(string(live), want), err, &tailErrs)
	}
	if out, err := s.client("stream", "rm", stream).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	rest, err := io.ReadAll(printed)
	if err != nil || len(rest) > 0 {
		t.Errorf("weir tail printed more: %.100q, %v", rest, err)
	}
	if err := tail.Wait(); err != nil || !strings.HasSuffix(tailErrs.String(), "weir: the stream was deleted\n") {
		t.Errorf("weir tail: %v\n%s", err, &tailErrs)
	}
}

// numbers returns the numbers from 1 to n, a line each.
func numbers(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// differ describes the first difference between two texts.
func differ(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("%d lines instead of %d; line %d is %q instead of %q", len(g)-1, len(w)-1, i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(g)-1, len(w)-1)
}
