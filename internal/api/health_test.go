package api_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"weir/internal/build"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/service/servicetest"
)

// switchable is a store that can be made read-only.
type switchable struct {
	engine.Engine
	readOnly atomic.Bool
}

func (s *switchable) Status() engine.Status {
	if s.readOnly.Load() {
		return engine.Status{State: engine.ReadOnly}
	}
	return s.Engine.Status()
}

// TestHealth covers /v1/health (D32), /v1/version, and CORS with a list of allowed origins (D29).
func TestHealth(t *testing.T) {
	store := &switchable{Engine: memory.New()}
	svc := startServiceWith(t, servicetest.Options{Engine: store, Args: []string{"--cors-origins", "https://a.example"}})
	b := build.This()
	for _, protocol := range protocols {
		for _, c := range []struct {
			readOnly bool
			body     string
			status   int
		}{{false, `{"status":"ok","uptime_s":`, 200}, {true, `{"status":"read_only","uptime_s":`, 503}} {
			store.readOnly.Store(c.readOnly)
			if a := svc.do(protocol, svc.request("GET", "/v1/health", nil, "")); a.status != c.status || !strings.HasPrefix(a.body, c.body) {
				t.Errorf("/v1/health returned %d %s, want %d %s", a.status, a.body, c.status, c.body)
			}
		}
		a := svc.do(protocol, svc.request("GET", "/v1/version", []string{noKey}, ""))
		if a.body != fmt.Sprintf(`{"version":%q,"commit":%q,"built":%q}`, b.Version, b.Commit, b.Built) {
			t.Errorf("/v1/version returned %s", a.body)
		}
		for origin, want := range map[string]string{"https://a.example": "https://a.example", "https://b.example": "", "null": ""} {
			a := svc.do(protocol, svc.request("OPTIONS", "/v1/streams", []string{noKey, "Origin: " + origin}, ""))
			if a.header.Get("access-control-allow-origin") != want || a.header.Get("vary") != "Origin" || (a.header.Get("access-control-allow-methods") != "") != (want != "") {
				t.Errorf("a request from origin %s got the header %v", origin, a.header)
			}
		}
	}
}
