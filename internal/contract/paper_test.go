package contract

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// The commands of docs/cluster.md give a cluster: as they stand there, but for the ports, which must be free.
func TestClusterPaper(t *testing.T) {
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), 2)
	if len(blocks) < 2 || !strings.HasPrefix(blocks[1][1], "weir serve --data node1") {
		t.Fatalf("docs/cluster.md does not begin with a secret and three commands: %q", blocks)
	}
	dir := t.TempDir()
	make := exec.Command("sh", "-c", blocks[0][1])
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", blocks[0][1], err, out)
	}
	commands := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(blocks[1][1], freePorts(t))
	var all sync.WaitGroup
	for _, line := range strings.Split(strings.TrimSpace(commands), "\n") {
		args := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), "&"))
		for i, a := range args {
			if a == "cluster.secret" || strings.HasPrefix(a, "node") {
				args[i] = filepath.Join(dir, a)
			}
		}
		program(t)
		all.Go(func() {
			s, err := start(binary.path, args[3], args[4:]...)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				return
			}
			t.Cleanup(func() { s.stop(t) })
			c := &caller{s.url, HTTP1()}
			if out, status, b := c.ask(context.Background(), "POST", "/v1/streams", `{"name":"paper"}`, nil); out != done {
				t.Errorf("%s: create a stream: %d %s", line, status, b)
			}
		})
	}
	all.Wait()
}

// freePorts gives each address another port, the same for the same.
func freePorts(t *testing.T) func(string) string {
	ports := map[string]string{}
	return func(address string) string {
		if ports[address] == "" {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ports[address] = l.Addr().String()
		}
		return ports[address]
	}
}
