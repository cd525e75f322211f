package guards

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere finds names of files that only an author's machine has. The brackets keep the pattern
// from matching itself.
var elsewhere = regexp.MustCompile(`\.\./[s]hared|/[w]ork/|/[r]oot/|/home/[a-z]+/|[D]ECISIONS\.md|[S]TYLE\.md|[R]ESEARCH\.md|[r]esearch/\w+\.md`)

// checkElsewhere wants a project that is complete by itself: no file may refer to a file outside
// the project.
func checkElsewhere(tr *tree) []string {
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		if !elsewhere.Match(tr.text[name]) {
			continue
		}
		for i, line := range strings.Split(string(tr.text[name]), "\n") {
			if found := elsewhere.FindString(line); found != "" {
				complaints = append(complaints, fmt.Sprintf("%s:%d: %s is not part of the project: say it here instead",
					name, i+1, found))
			}
		}
	}
	return complaints
}

func TestElsewhere(t *testing.T) { passes(t, checkElsewhere) }

func TestElsewherePlanted(t *testing.T) {
	catches(t, checkElsewhere, []plant{
		{"next to the project", "-- docs/a.md --\nfine\nsee ../" + "shared/x\n", "docs/a.md:2: ../" + "shared"},
		{"a path on one machine", "-- a.go --\npackage weir\n// /" + "work/main\n", "a.go:2"},
		{"names inside the project", "-- a.md --\nDESIGN.md, docs/decisions.md, network/x\n", ""},
	})
}

var quoted = regexp.MustCompile(`\bD(\d{1,2})\b`)

// checkQuotes wants code and documents to refer only to decisions that exist.
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
		{"a decision that exists", decisions + "-- a.go --\npackage weir // D" + "1\n", ""},
		{"a decision that does not exist", decisions + "-- a.go --\npackage weir // D" + "77\n", "a.go:1: docs/decisions.md has no D" + "77"},
	})
}
