package guards

import (
	"go/ast"
	"slices"
	"testing"
)

// sleepers lists the test files that may sleep, each with its reason.
var sleepers = map[string]string{
	"internal/hub/hub_test.go":      "all its tests run in the function engines, which starts a synctest bubble with fake time",
	"internal/hub/stats_test.go":    "same reason as hub_test.go",
	"internal/hub/folded_test.go":   "same reason as hub_test.go",
	"internal/hub/close_test.go":    "same reason as hub_test.go",
	"internal/hub/lifetime_test.go": "same reason as hub_test.go",
	"internal/hub/create_test.go":   "same reason as hub_test.go",
	"internal/sim/gates_test.go":    "it runs in the synctest bubble of the function simulate, and lets simulated time pass",
	"internal/api/release_test.go":  "it plays a slow client, and does not wait for anything",
}

// checkSleep wants tests that wait for an event and not for time to pass. A sleep is too short on a
// busy machine and too long on an idle one. Inside synctest.Test the clock is fake, so a sleep
// costs nothing there.
func checkSleep(tr *tree) []string {
	var complaints []string
	for _, s := range tr.goFiles {
		if !s.test && !slices.Contains(forTests, roomOf(s.dir)) || sleepers[s.path] != "" {
			continue
		}
		bubbles := bubbles(s.ast)
		for _, n := range calls(s.ast, "time", "Sleep") {
			if slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() <= n.Pos() && n.End() <= b.End() }) {
				continue
			}
			complaints = append(complaints, tr.at(n)+": a test sleeps: wait for the event, or use testing/synctest "+
				"(or name the reason in internal/guards)")
		}
	}
	return complaints
}

// bubbles returns the calls to synctest.Test in a file.
func bubbles(file *ast.File) []ast.Node {
	tests := calls(file, "testing/synctest", "Test")
	var found []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && slices.Contains(tests, ast.Node(call.Fun)) {
			found = append(found, call)
		}
		return true
	})
	return found
}

func TestSleep(t *testing.T) { passes(t, checkSleep) }

func TestSleepPlanted(t *testing.T) {
	body := "\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	catches(t, checkSleep, []plant{
		{"in a test", "-- a_test.go --\npackage weir" + body, "a_test.go:3: a test sleeps"},
		{"in a suite", "-- internal/engine/enginetest/a.go --\npackage enginetest" + body, "a test sleeps"},
		{"in a bubble", "-- a_test.go --\npackage weir\nimport (\n\"testing/synctest\"\n\"time\"\n)\n" +
			"func f() { synctest.Test(nil, func() { time.Sleep(1) }) }\n", ""},
		{"next to a bubble", "-- a_test.go --\npackage weir\nimport (\n\"testing/synctest\"\n\"time\"\n)\n" +
			"func f() {\nsynctest.Test(nil, func() {})\ntime.Sleep(1)\n}\n", "a_test.go:8: a test sleeps"},
		{"in a program", "-- a.go --\npackage weir" + body, ""},
	})
}
