package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	in, input := io.Pipe()
	output, out := io.Pipe()
	go func() { run(in, out); out.Close() }()
	lines := bufio.NewScanner(output)
	ask := func(line string) (a answer) {
		t.Helper()
		io.WriteString(input, line+"\n")
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &a) != nil {
			t.Fatalf("%s: got %q, want an answer in JSON", line, lines.Text())
		}
		return a
	}
	a := ask(`{"start":{"Backend":"` + backend.Addr().String() + `"}}`)
	for _, line := range []string{`{"set":{"rate":40000,"refuse":true}}`, `{"reset":true}`, `{"play":{"seed":1,"steps":0}}`, `{"backend":"` + backend.Addr().String() + `"}`} {
		if got := ask(line); got.Error != "" {
			t.Errorf("%s: %s", line, got.Error)
		}
	}
	c, err := net.Dial("tcp", a.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := backend.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if got := ask(`{"count":true}`); got.Opened != 1 {
		t.Errorf("%d connections, want 1", got.Opened)
	}
	if got := ask(`{"brew":"tea"}`); got.Error != "unknown command" {
		t.Errorf("an unknown command: %+v", got)
	}
	if lines.Scan() {
		t.Errorf("an answer that no command asked for: %s", lines.Text())
	}
	input.Close()
}
