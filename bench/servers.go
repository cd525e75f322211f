package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// peerServer starts a server of the comparison in a subdirectory of dir.
type peerServer struct {
	name  string
	start func(dir string) (*peer, error)
}

// peerServers returns the servers in the order of the table.
func peerServers(npm string) []peerServer {
	redis := func(appendfsync, means string) peerServer {
		return peerServer{"Redis, appendfsync " + appendfsync, func(dir string) (*peer, error) { return startRedis(dir, appendfsync, means) }}
	}
	jetStream := func(sync, means string, lazy bool) peerServer {
		return peerServer{"NATS JetStream, sync_interval " + sync, func(dir string) (*peer, error) { return startNATS(dir, sync, means, lazy) }}
	}
	durableStreams := func(mode, means string) peerServer {
		return peerServer{"Durable Streams, Node.js server, " + mode, func(dir string) (*peer, error) { return startDurableStreams(dir, npm, mode, means) }}
	}
	return []peerServer{
		redis("always", "synced, grouped"),
		jetStream("always", "synced, one by one", false),
		durableStreams("file", "synced, one by one"),
		redis("everysec", "page cache, synced every 1 s"),
		jetStream("2m", "page cache, synced every 2 min", true),
		{"nchan", startNchan},
		durableStreams("memory", "memory"),
	}
}

// launch starts a server and waits until it accepts connections. The server writes its output to a
// file. If the server does not start, the error contains the end of this output.
func launch(name, addr, dir string, cmd *exec.Cmd) (*target, error) {
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := begin(cmd); err != nil {
		return nil, err
	}
	t := &target{name: name, addr: addr, process: cmd}
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return t, nil
		}
	}
	t.stop()
	b, _ := os.ReadFile(output.Name())
	return nil, fmt.Errorf("%s does not listen on %s: %s", cmd.Path, addr, b[max(0, len(b)-500):])
}

// place returns an empty directory and a free address for a server.
func place(dir, name string) (string, string, error) {
	dir, err := emptyDir(dir, name)
	if err != nil {
		return "", "", err
	}
	addr, err := freeAddress()
	return dir, addr, err
}

// program finds a program and returns its path. It searches PATH and then the directories for
// system programs, such as /usr/sbin, which are not in the PATH of most users.
func program(name, install string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s not found; %s", name, install)
}

var versionPattern = regexp.MustCompile(`\d+(\.\d+)+`)

// version returns the first version number in the output of a program.
func version(path, flag string) string {
	b, _ := exec.Command(path, flag).CombinedOutput()
	return versionPattern.FindString(string(b))
}

// startRedis runs Redis with an append-only file and no snapshots. It disables the rewriting of
// this file, which runs in the background and would slow down the server that is measured next.
func startRedis(dir, appendfsync, means string) (*peer, error) {
	path, err := program("redis-server", "apt install redis-server")
	if err != nil {
		return nil, err
	}
	dir, addr, err := place(dir, "redis-"+appendfsync)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	t, err := launch(fmt.Sprintf("Redis %s, appendfsync %s", version(path, "--version"), appendfsync), addr, dir, exec.Command(path,
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0"))
	if err != nil {
		return nil, err
	}
	return &peer{target: t, means: means, fill: peerKeeps, open: openRedis}, nil
}

const natsStream = "bench" // name of the JetStream stream and of its subject

// startNATS runs a single NATS server, and creates and fills a stream. It fills the stream with
// large messages, because every message costs a synced write: with messages of 1 KiB this would
// take half a minute. If lazy is set, the server syncs every two minutes, which is the default of
// NATS.
func startNATS(dir, sync, means string, lazy bool) (*peer, error) {
	dir, addr, err := place(dir, "nats-"+sync)
	if err != nil {
		return nil, err
	}
	cmd, err := plainServer{Name: "bench", Dir: dir, Client: addr, Lazy: lazy}.command()
	if err != nil {
		return nil, err
	}
	t, err := launch(fmt.Sprintf("NATS JetStream %s, sync_interval %s", server.VERSION, sync), addr, dir, cmd)
	if err != nil {
		return nil, err
	}
	if err := fillNATS(addr); err != nil {
		t.stop()
		return nil, err
	}
	return &peer{target: t, means: means, open: openNATS}, nil
}

func fillNATS(addr string) error {
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const keeps = peerKeeps << 10
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: natsStream, Subjects: []string{natsStream}, MaxBytes: keeps}); err != nil {
		return err
	}
	payload := body(128 << 10)
	for n := 0; n < keeps; n += len(payload) {
		if _, err := js.Publish(ctx, natsStream, payload); err != nil {
			return err
		}
	}
	return nil
}

// startNchan runs nginx with the module nchan, which keeps messages in shared memory. It has one
// worker process, the default of nginx. A channel belongs to one worker, so further workers would
// only forward requests to that worker.
func startNchan(dir string) (*peer, error) {
	path, err := program("nginx", "apt install nginx-light libnginx-mod-nchan")
	if err != nil {
		return nil, err
	}
	module := ""
	for _, d := range []string{"/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/local/lib/nginx/modules"} {
		if name := filepath.Join(d, "ngx_nchan_module.so"); isFile(name) {
			module = name
		}
	}
	if module == "" {
		return nil, errors.New("ngx_nchan_module.so not found; apt install libnginx-mod-nchan")
	}
	dir, addr, err := place(dir, "nchan")
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Geteuid() == 0 { // then nginx would run the workers as a user that cannot enter the directory
		user = "user root;"
	}
	file := filepath.Join(dir, "nginx.conf")
	config := fmt.Sprintf(`load_module %s;
%s
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr error;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	keepalive_requests 1000000000;
	nchan_shared_memory_size 512M;
	server {
		listen %s;
		location = /publish {
			nchan_publisher;
			nchan_channel_id bench;
			nchan_message_buffer_length %d;
			nchan_message_timeout 1h;
		}
	}
}
`, module, user, addr, peerKeeps)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	t, err := launch("nchan (nginx "+version(path, "-v")+")", addr, dir, exec.Command(path, "-p", dir, "-c", file, "-e", "stderr"))
	if err != nil {
		return nil, err
	}
	return &peer{target: t, means: "memory", fill: peerKeeps}, nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// startDurableStreams runs the Node.js server of Durable Streams, which keeps everything, and
// creates a stream. The mode is file or memory.
func startDurableStreams(dir, npm, mode, means string) (*peer, error) {
	path, err := program("node", "apt install nodejs")
	if err != nil {
		return nil, err
	}
	var about struct{ Version string }
	b, err := os.ReadFile(filepath.Join(npm, "node_modules/@durable-streams/server/package.json"))
	if npm == "" || err != nil {
		return nil, errors.New("@durable-streams/server not found; npm install --prefix DIR @durable-streams/server, and run this with -durable-streams DIR")
	}
	if err := json.Unmarshal(b, &about); err != nil {
		return nil, err
	}
	dir, addr, err := place(dir, "durable-streams-"+mode)
	if err != nil {
		return nil, err
	}
	data := ""
	if mode == "file" {
		data = filepath.Join(dir, "data")
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "--input-type=module", "--eval", strings.TrimSpace(`
import { DurableStreamTestServer } from "@durable-streams/server"
const [port, dataDir] = process.argv.slice(1)
await new DurableStreamTestServer({ host: "127.0.0.1", port: Number(port), dataDir: dataDir || undefined }).start()
`), port, data)
	cmd.Dir = npm // where Node.js looks for packages
	t, err := launch(fmt.Sprintf("Durable Streams, Node.js server %s, %s", about.Version, mode), addr, dir, cmd)
	if err != nil {
		return nil, err
	}
	c, err := dial(addr)
	if err == nil {
		defer c.conn.Close()
		err = c.do(request("PUT", t.publishPath(0), "", nil, "Content-Type: application/json"))
	}
	if err != nil {
		t.stop()
		return nil, err
	}
	return &peer{target: t, means: means}, nil
}
