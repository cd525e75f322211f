package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// plainServer describes a NATS server that runs in a child process. With a route address it is a
// member of a cluster, without one it is a single server. If Lazy is set, sync_interval has the
// default of NATS; otherwise the server syncs every write. If Encrypts is set, the servers of the
// cluster talk TLS to each other, as the nodes of Weir do.
type plainServer struct {
	Name, Dir      string
	Client, Route  string
	Routes         []string
	Lazy, Encrypts bool
}

// serveNATS runs the NATS server of a child process.
func serveNATS(text string) error {
	var p plainServer
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	client, err := net.ResolveTCPAddr("tcp", p.Client)
	if err != nil {
		return err
	}
	options := &server.Options{
		ServerName: p.Name, Host: "127.0.0.1", Port: client.Port, JetStream: true, StoreDir: p.Dir, SyncAlways: !p.Lazy, NoLog: true,
	}
	if p.Route != "" {
		route, err := net.ResolveTCPAddr("tcp", p.Route)
		if err != nil {
			return err
		}
		options.Cluster = server.ClusterOpts{Name: "plain", Host: "127.0.0.1", Port: route.Port}
		options.Routes = server.RoutesFromStr(strings.Join(p.Routes, ","))
		if p.Encrypts {
			cert, err := selfSigned()
			if err != nil {
				return err
			}
			options.Cluster.TLSTimeout = 5
			options.Cluster.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// command returns the command that runs this program as the server.
func (p plainServer) command() (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), plainEnv+"="+string(text))
	return cmd, err
}

// plainCluster is a cluster of three NATS servers without Weir.
type plainCluster struct {
	servers []*target
	addrs   []string
}

func (p *plainCluster) stop() {
	for _, s := range p.servers {
		s.stop()
	}
}

// startPlain starts the servers and creates as many streams as Weir has shards. On an error it
// still returns the servers that are running, so that the caller can stop them.
func startPlain(dir string, encrypts bool) (*plainCluster, error) {
	var err error
	p, all := &plainCluster{}, make([]plainServer, clusterNodes)
	var routes []string
	for i := range all {
		if all[i].Client, err = freeAddress(); err == nil {
			all[i].Route, err = freeAddress()
		}
		if err != nil {
			return p, err
		}
		all[i].Name, all[i].Dir = fmt.Sprint("plain", i), filepath.Join(dir, fmt.Sprint("plain", i))
		routes = append(routes, "nats://"+all[i].Route)
	}
	for _, s := range all {
		s.Routes, s.Encrypts = routes, encrypts
		cmd, err := s.command()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return p, err
		}
		p.servers = append(p.servers, &target{name: "plain JetStream", process: cmd})
		p.addrs = append(p.addrs, s.Client)
	}
	return p, p.createStreams()
}

// createStreams creates the streams. It retries for 30 s, until the servers have formed a cluster.
func (p *plainCluster) createStreams() error {
	nc, err := nats.Connect(strings.Join(p.addrs, ","), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for i := range clusterShards {
		c := jetstream.StreamConfig{Name: fmt.Sprint("plain", i), Subjects: []string{fmt.Sprintf("plain.%d.*", i)}, Replicas: 3, MaxBytes: plainKeeps}
		for begun := time.Now(); ; {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := js.CreateStream(ctx, c)
			cancel()
			if err == nil {
				break
			}
			if time.Since(begun) > 30*time.Second {
				return fmt.Errorf("create stream %d: %w", i, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

// publishing measures the servers under the given load. Each publisher has a connection and waits
// for its acknowledgements. The parameter from is the index of the first server and of the first
// stream to use.
func (p *plainCluster) publishing(l publishLoad, span time.Duration, from int) (row, error) {
	payload := body(l.Size)
	var talkers []*talker
	defer func() { closeAll(talkers) }()
	for i := range l.Connections {
		stream := from + i%l.Streams
		subject := fmt.Sprintf("plain.%d.%d", stream%clusterShards, stream)
		t, err := connectNATS(p.addrs[(from+i)%len(p.addrs)], subject, payload)
		if err != nil {
			return row{}, err
		}
		talkers = append(talkers, t)
	}
	return talk(talkers, l.Size, span, func() time.Duration { return cpuOf(p.servers) })
}
