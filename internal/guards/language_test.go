package guards

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxVague is the maximum number of vagueWords in all files together. A sentence with such a word
// usually means a client, a node or an operator, and is clearer if it says so.
const maxVague = 40

// vagueWords stand for a person that the text does not name. Each word is spelled in two parts
// here, so that the guard does not count it.
var vagueWords = []string{"no" + "body", "some" + "body", "every" + "body", "who" + "ever"}

var vague = regexp.MustCompile(`(?i)\b(` + strings.Join(vagueWords, "|") + `)\b`)

// checkVague counts vagueWords in all text files. If there are too many, it lists the files, those
// with the most words first.
func checkVague(tr *tree) []string {
	total, lines := 0, map[string][]string{}
	for name, text := range tr.text {
		if slices.Contains(vendored, name) {
			continue
		}
		for _, at := range vague.FindAllIndex(text, -1) {
			lines[name] = append(lines[name], fmt.Sprint(1+bytes.Count(text[:at[0]], []byte("\n"))))
			total++
		}
	}
	if total <= maxVague {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		if n := len(lines[b]) - len(lines[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "\n\t%s: lines %s", name, strings.Join(lines[name], ", "))
	}
	return []string{fmt.Sprintf("%d vague persons (%s), more than %d: name the component or client instead:%s",
		total, strings.Join(vagueWords, ", "), maxVague, &b)}
}

func TestVaguePersons(t *testing.T) { passes(t, checkVague) }

func TestVaguePersonsPlanted(t *testing.T) {
	word := vagueWords[0]
	catches(t, checkVague, []plant{
		{"at the limit", "-- a.go --\npackage a\n// " + strings.Repeat(word+" ", maxVague) + "\n", ""},
		{"over the limit", "-- a.go --\npackage a\n-- b.md --\n\n" + strings.Repeat(word+" ", maxVague) + "\n-- c.txt --\n" + strings.ToUpper(vagueWords[3]) + "\n",
			"41 vague persons (" + strings.Join(vagueWords, ", ") + "), more than 40"},
		{"other words", "-- a.md --\n" + strings.Repeat("anybody "+word+"knows ", maxVague) + "\n", ""},
		{"another project's file", "-- LICENSE --\n" + strings.Repeat(word+" ", maxVague+1) + "\n", ""},
	})
}
