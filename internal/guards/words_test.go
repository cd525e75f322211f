package guards

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sleepers are test files that may sleep, each for the reason beside it.
var sleepers = map[string]string{
	"internal/hub/hub_test.go":   "every test of it runs in engines, which is a bubble of fake time",
	"internal/hub/stats_test.go": "as hub_test.go",
}

// checkSleep wants tests that wait for the thing itself. Inside of synctest.Test a sleep turns the hands of a clock that
// is not real, and waits for nothing.
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
			complaints = append(complaints, tr.at(n)+": a test sleeps: wait for the thing itself, or use testing/synctest "+
				"(or name the reason in internal/guards)")
		}
	}
	return complaints
}

// bubbles are the calls of synctest.Test in a file.
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
		{"beside a bubble", "-- a_test.go --\npackage weir\nimport (\n\"testing/synctest\"\n\"time\"\n)\n" +
			"func f() {\nsynctest.Test(nil, func() {})\ntime.Sleep(1)\n}\n", "a_test.go:8: a test sleeps"},
		{"in a program", "-- a.go --\npackage weir" + body, ""},
	})
}

// elsewhere finds what only the machine of an author has. The brackets keep it from finding itself.
var elsewhere = regexp.MustCompile(`\.\./[s]hared|/[w]ork/|/[r]oot/|/home/[a-z]+/|[D]ECISIONS\.md|[S]TYLE\.md|[R]ESEARCH\.md|[r]esearch/\w+\.md`)

// checkElsewhere wants a project that stands alone: no file names a place outside of it.
func checkElsewhere(tr *tree) []string {
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		if !elsewhere.Match(tr.text[name]) {
			continue
		}
		for i, line := range strings.Split(string(tr.text[name]), "\n") {
			if found := elsewhere.FindString(line); found != "" {
				complaints = append(complaints, fmt.Sprintf("%s:%d: %s is no part of the project: say it here, in our own words",
					name, i+1, found))
			}
		}
	}
	return complaints
}

func TestElsewhere(t *testing.T) { passes(t, checkElsewhere) }

func TestElsewherePlanted(t *testing.T) {
	catches(t, checkElsewhere, []plant{
		{"beside the project", "-- docs/a.md --\nfine\nsee ../" + "shared/x\n", "docs/a.md:2: ../" + "shared"},
		{"a path of a machine", "-- a.go --\npackage weir\n// /" + "work/main\n", "a.go:2"},
		{"a name of ours", "-- a.md --\nDESIGN.md, docs/decisions.md, network/x\n", ""},
	})
}

var quoted = regexp.MustCompile(`\bD(\d{1,2})\b`)

// checkQuotes wants every decision that code or papers quote to be one.
func checkQuotes(tr *tree) []string {
	known := map[string]bool{}
	for _, m := range decision.FindAllStringSubmatch(string(tr.text["docs/decisions.md"]), -1) {
		known["D"+m[1]] = true
	}
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		switch path.Ext(name) {
		case ".go", ".md", ".txt":
		default:
			continue
		}
		for i, line := range strings.Split(string(tr.text[name]), "\n") {
			for _, q := range quoted.FindAllString(line, -1) {
				if !known[q] {
					complaints = append(complaints, fmt.Sprintf("%s:%d: docs/decisions.md has no %s", name, i+1, q))
				}
			}
		}
	}
	return complaints
}

func TestQuotes(t *testing.T) { passes(t, checkQuotes) }

func TestQuotesPlanted(t *testing.T) {
	decisions := "-- docs/decisions.md --\n### D" + "1 Numbers\n"
	catches(t, checkQuotes, []plant{
		{"a decision", decisions + "-- a.go --\npackage weir // D" + "1\n", ""},
		{"no decision", decisions + "-- a.go --\npackage weir // D" + "77\n", "a.go:1: docs/decisions.md has no D" + "77"},
	})
}
