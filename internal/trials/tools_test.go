package trials

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool returns the path of a program of the tools module, which the go command keeps in its cache. It
// skips the test if the build fails, for example without a network.
func tool(t *testing.T, name string) string {
	t.Helper()
	build := exec.Command("go", "tool", "-n", name)
	build.Dir = "../../tools"
	var problem bytes.Buffer
	build.Stderr = &problem
	path, err := build.Output()
	if err != nil {
		t.Skipf("cannot build %s: %v\n%s", name, err, problem.Bytes())
	}
	return strings.TrimSpace(string(path))
}

// The server passes the generic and HPACK sections of h2spec, in clear text and over TLS.
func TestHTTP2Conformance(t *testing.T) {
	t.Parallel()
	h2spec := tool(t, "h2spec")
	s := serve(t, t.TempDir(), "--demo=false", "--rate-anonymous", "0")
	for at, flags := range map[string][]string{s.url: nil, s.secure: {"--tls", "--insecure"}} {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(h2spec, append(flags, "generic", "hpack", "--host", u.Hostname(), "--port", u.Port(), "--path", "/v1/health", "--timeout", "20")...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte(" 0 failed")) {
			t.Errorf("%s: %v\n%s", at, err, out)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Logf("%s: %s", at, lines[len(lines)-1])
	}
}

// freePort returns a port that is free for TCP and UDP, for programs that cannot choose one
// themselves. The operating system takes the ports of outgoing connections from a range above 30,000.
func freePort(t *testing.T) int {
	t.Helper()
	for range 20 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		l.Close()
		if err == nil {
			u.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// writeFile writes a temporary file and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
