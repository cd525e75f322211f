package jetstream

import (
	"errors"
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"2.15.2": true, "2.15.10": true, "2.16.0": true, "3.0.0": true, "2.16.0-RC.1": true,
		"2.15.1": false, "2.15.2-RC.1": false, "2.14.9": false, "1.99.99": false, "": false, "2.15": false, "x.y.z": false,
	} {
		if got := recent(version); got != want {
			t.Errorf("%q is new enough: %v", version, got)
		}
	}
}

func TestWhatServersSay(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		keeps  bool
		says   string
	}{
		"synced":     {`{"server":{"name":"a","ver":"2.15.2"},"data":{"jetstream":{"config":{"sync_always":true}}}}`, true, ""},
		"not synced": {`{"server":{"name":"a","ver":"2.15.2"},"data":{"jetstream":{"config":{"sync_interval":120000000000}}}}`, true, "server a runs without sync_interval: always"},
		"too old":    {`{"server":{"name":"b","ver":"2.12.1"},"data":{"jetstream":{"config":{"sync_always":true}}}}`, true, "server b has version 2.12.1: 2.15.2 or newer"},
		"no store":   {`{"server":{"name":"c","ver":"2.15.2"},"data":{"jetstream":{}}}`, false, ""},
		"no answer":  {`nonsense`, false, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			keeps, err := look([]byte(c.answer))
			if keeps != c.keeps || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", keeps, err)
			}
		})
	}
}

// Who may not ask is refused as well: nobody could tell.
func TestCheckWithoutProof(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := Check(ctx, nc, nc); !errors.Is(err, ErrUnsynced) {
		t.Errorf("check: %v", err)
	}
}
