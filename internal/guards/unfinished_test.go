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

// unfinished finds sentences about work that is still to be done. Documents describe what exists,
// and such a sentence stays long after the work is done. The pattern matches line breaks as well as
// spaces, because a sentence may run over several lines.
var unfinished = regexp.MustCompile(`(?i:\bnot\s+yet\b)|(?i:\bdo(es)?\s+not\s+exist\s+yet\b)|\bNo\b[^.!?|]*?\byet\b`)

// checkUnfinished wants documents that announce no future work. It does not check the changelog.
func checkUnfinished(tr *tree) []string {
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" {
			continue
		}
		text := string(tr.text[name])
		for _, at := range unfinished.FindAllStringIndex(text, -1) {
			complaints = append(complaints, fmt.Sprintf("%s:%d: %q: describe what exists",
				name, strings.Count(text[:at[0]], "\n")+1, strings.Join(strings.Fields(text[at[0]:at[1]]), " ")))
		}
	}
	return complaints
}

func TestUnfinished(t *testing.T) { passes(t, checkUnfinished) }

func TestUnfinishedPlanted(t *testing.T) {
	catches(t, checkUnfinished, []plant{
		{"in the FAQ", "-- docs/manual/faq.md --\n## Can it run on two machines?\n\nNot yet.\n", `docs/manual/faq.md:3: "Not yet"`},
		{"in a table", "-- a.md --\n| machines | not yet | no |\n", "a.md:1"},
		{"rooms", "-- a.md --\nThese rooms do not exist yet.\n", "do not exist yet"},
		{"over two lines", "-- a.md --\nA store that does not exist\nyet has four.\n", "does not exist yet"},
		{"none of something", "-- a.md --\nOne server. No cluster of\nany kind yet. Fine.\n", `a.md:1: "No cluster of any kind yet"`},
		{"two sentences", "-- a.md --\nNo cluster. It answers and yet it is small.\n", ""},
		{"in the changelog", "-- CHANGELOG.md --\nNot yet released.\n", ""},
		{"in code", "-- a.go --\npackage a // not yet\n", ""},
	})
}
