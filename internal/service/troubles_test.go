package service_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
	"weir/internal/natstest"
	"weir/internal/service/servicetest"
)

// awaitTrouble waits until the dashboard shows trouble of this kind in this state. If the state is
// empty, it waits until the dashboard shows no trouble of this kind.
func awaitTrouble(t *testing.T, s *servicetest.Service, kind, state string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(2 * time.Minute); ; <-tick.C {
		all := s.Dashboard.Troubles()
		i := slices.IndexFunc(all, func(t dashboard.Trouble) bool { return t.Kind == kind })
		switch {
		case state == "" && i < 0:
			return
		case state != "" && i >= 0 && strings.HasPrefix(all[i].State, state):
			if all[i].Reason == "" || all[i].Remedy == "" {
				t.Errorf("the trouble has no reason or no remedy: %+v", all[i])
			}
			return
		}
		if time.Now().After(late) {
			t.Fatalf("the dashboard shows %v, want %s %q", all, kind, state)
		}
	}
}

func TestTroubleOfAFullDisk(t *testing.T) {
	disk := servicetest.NewDisk()
	s := servicetest.Start(t, servicetest.Options{Engine: disk})
	if all := s.Dashboard.Troubles(); len(all) != 0 {
		t.Errorf("a healthy server shows %v", all)
	}
	disk.SetFull(func([]byte) bool { return true })
	awaitTrouble(t, s, dashboard.TroubleFull, "The store is full.")
	if reason := s.Dashboard.Troubles()[0].Reason; !strings.HasPrefix(reason, "No space left in the store. ") {
		t.Errorf("the dashboard does not give the reason of the store: %s", reason)
	}
	disk.SetFull(nil)
	awaitTrouble(t, s, dashboard.TroubleFull, "")
}

func TestTroubleOfACluster(t *testing.T) {
	nats := natstest.Start(t, true)
	a, b := startNode(t, nats, nats.URL, nil), startNode(t, nats, nats.URL, nil)
	awaitTrouble(t, a, "nodes", "")
	awaitTrouble(t, b, "nodes", "")
	wrong := startNode(t, nats, nats.URL, func() time.Time { return time.Now().Add(2 * time.Hour) })
	awaitTrouble(t, wrong, "clock", "The clock of this node is wrong.")
	awaitTrouble(t, a, "nodes", "")
	wrong.Stop()
	awaitTrouble(t, a, "nodes", "2 of 3 nodes")
	shown := a.Dashboard.Nodes()
	missing := slices.DeleteFunc(slices.Clone(shown.List), func(n dashboard.Node) bool { return !n.Missing() })
	if shown.Connected != 2 || shown.Expected != 3 || len(shown.List) != 3 || len(missing) != 1 || missing[0].Version == "" {
		t.Errorf("the dashboard shows these nodes: %+v", shown)
	}
	awaitTrouble(t, b, "nodes", "2 of 3 nodes")
}
