package trials

import (
	"strings"
	"testing"
)

// raceExit is the exit code of a process in which the race detector found something.
const raceExit = 66

// natsServer is the prefix of the name of every function in the NATS server.
const natsServer = "github.com/nats-io/nats-server/"

// hasOwnRace reports whether a log has a data race that concerns Weir. A race in which both
// accesses are in the NATS server does not count, because only the authors of NATS can repair it.
// Version 2.15.2 has such a race, between a leader that becomes a follower and a write in progress.
func hasOwnRace(log string) bool {
	reports := strings.Split(log, "WARNING: DATA RACE\n")
	for _, report := range reports[1:] {
		report, _, _ = strings.Cut(report, "==================")
		lines := strings.Split(report, "\n")
		for i, line := range lines {
			line = strings.ToLower(strings.TrimSpace(line))
			access := strings.HasPrefix(line, "write at ") || strings.HasPrefix(line, "read at ") ||
				strings.HasPrefix(line, "previous write at ") || strings.HasPrefix(line, "previous read at ")
			if access && (i+1 == len(lines) || !strings.HasPrefix(strings.TrimSpace(lines[i+1]), natsServer)) {
				return true
			}
		}
	}
	return false
}

func TestHasOwnRace(t *testing.T) {
	report := func(first, second string) string {
		return "WARNING: DATA RACE\nWrite at 0x00c0 by goroutine 1:\n  " + first + "()\n      x.go:1 +0x1\n\n" +
			"Previous read at 0x00c0 by goroutine 2:\n  " + second + "()\n      y.go:1 +0x1\n\n" +
			"Goroutine 1 (running) created at:\n  weir/internal/service.Start()\n==================\n"
	}
	theirs, ours := natsServer+"v2/server.commitSingleMsg", "weir/internal/hub.(*feed).Commit"
	for log, want := range map[string]bool{
		"":                     false,
		report(theirs, theirs): false,
		report(ours, theirs):   true,
		report(theirs, ours):   true,
		report(theirs, theirs) + report(ours, ours): true,
	} {
		if got := hasOwnRace(log); got != want {
			t.Errorf("hasOwnRace is %v, want %v, for the log\n%s", got, want, log)
		}
	}
}
