package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"weir/internal/engine/jetstream/embedded"
)

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"2.15.2": true, "2.15.10": true, "2.16.0": true, "3.0.0": true, "2.16.0-RC.1": true,
		"2.15.1": false, "2.15.2-RC.1": false, "2.14.9": false, "1.99.99": false, "": false, "2.15": false, "x.y.z": false,
	} {
		if got := recent(version); got != want {
			t.Errorf("recent(%q) = %v", version, got)
		}
	}
}

func TestServerReports(t *testing.T) {
	const (
		synced = `{"server":{"name":"a","ver":"2.15.2"},"data":{"config":{"sync_always":true}}}`
		leader = `{"server":{"name":"a","ver":"2.15.2"},"data":{"config":{"sync_always":true},"meta_cluster":{"leader":"a","replicas":[{"name":"b"},{"name":"c","offline":true}]}}}`
		second = `{"server":{"name":"b","ver":"2.15.2"},"data":{"config":{"sync_always":true},"meta_cluster":{"leader":"a"}}}`
	)
	for name, c := range map[string]struct {
		answers []string
		says    string
	}{
		"synced":                      {[]string{synced}, ""},
		"not synced":                  {[]string{synced, `{"server":{"name":"b","ver":"2.15.2"},"data":{"config":{"sync_interval":120000000000}}}`}, "server b runs without sync_interval: always"},
		"too old":                     {[]string{`{"server":{"name":"b","ver":"2.12.1"},"data":{"config":{"sync_always":true}}}`}, "server b has version 2.12.1, need 2.15.2 or newer"},
		"no store":                    {[]string{`{"server":{"name":"c","ver":"2.15.2"},"data":{"disabled":true}}`}, "only the system account can ask"},
		"no answer":                   {nil, "only the system account can ask"},
		"nonsense":                    {[]string{`nonsense`}, "read status of a NATS server"},
		"all servers that are online": {[]string{second, leader}, ""},
		"one server is missing":       {[]string{leader}, "server b did not report"},
		"the leader is silent":        {[]string{second}, "server a did not report"},
	} {
		t.Run(name, func(t *testing.T) {
			var all census
			var err error
			for _, a := range c.answers {
				if err == nil {
					err = all.add([]byte(a))
				}
			}
			if err == nil {
				err = all.verdict()
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Error(err)
			}
		})
	}
}

// If the connection has no permission to ask whether the servers sync, Check refuses the servers.
func TestCheckWithoutProof(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := Check(t.Context(), nc, nc); !errors.Is(err, ErrUnsynced) {
		t.Errorf("check: %v, want ErrUnsynced", err)
	}
}

// A server that syncs before it acknowledges is accepted. Any other server is refused with an error
// that names the server.
func TestCheckServers(t *testing.T) {
	for _, synced := range []bool{true, false} {
		system := natsd.NewAccount("SYS")
		s, err := natsd.NewServer(&natsd.Options{
			ServerName: "lone", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: synced,
			Accounts: []*natsd.Account{system}, SystemAccount: "SYS",
			Users: []*natsd.User{{Username: "system", Password: "x", Account: system}, {Username: "weir", Password: "x"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("the server did not start")
		}
		connect := func(user string) *nats.Conn {
			nc, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo(user, "x"))
			if err != nil {
				t.Fatal(err)
			}
			return nc
		}
		nc, sys := connect("weir"), connect("system")
		err = Check(t.Context(), nc, sys)
		if synced && err != nil || !synced && (!errors.Is(err, ErrUnsynced) || !strings.Contains(err.Error(), "server lone runs without")) {
			t.Errorf("synced: %v; check: %v", synced, err)
		}
		nc.Close()
		sys.Close()
		s.Shutdown()
		s.WaitForShutdown()
	}
}
