package trials

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentedCommands returns the commands of docs/cluster.md that start three nodes, and then those
// that add two more: for each node its data directory and the flags after it. It replaces the ports by free ones and changes nothing
// else.
func documentedCommands(t testing.TB) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	growth := slices.IndexFunc(blocks, func(b []string) bool { return strings.HasPrefix(b[1], "weir serve --data node4") })
	if growth < 0 || !strings.HasPrefix(blocks[1][1], "weir serve --data node1") {
		t.Fatalf("docs/cluster.md does not begin with a block that creates the secret and a block of three commands, or has no block that adds nodes: %q", blocks)
	}
	dir := t.TempDir()
	secret := exec.Command("sh", "-c", blocks[0][1])
	secret.Dir = dir
	if out, err := secret.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", blocks[0][1], err, out)
	}
	var commands [][]string
	for line := range strings.Lines(regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(blocks[1][1]+blocks[growth][1], freePorts(t))) {
		args := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), "&"))
		for i, a := range args {
			if a == "cluster.secret" || strings.HasPrefix(a, "node") {
				args[i] = filepath.Join(dir, a)
			}
		}
		commands = append(commands, args[3:])
	}
	return commands
}

// freePorts returns a function that replaces the port of an address by a free port, always by the
// same one for the same address. These ports are outside the range from which the system chooses
// ports: otherwise another program could get the port of a node while the node restarts.
func freePorts(t testing.TB) func(string) string {
	ports := map[string]string{}
	return func(address string) string {
		for tries := 0; ports[address] == ""; tries++ {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000)))
			if err == nil {
				if free := l.Addr().String(); !slices.Contains(slices.Collect(maps.Values(ports)), free) {
					ports[address] = free
				}
				l.Close()
			} else if tries == 100 {
				t.Fatal(err)
			}
		}
		return ports[address]
	}
}
