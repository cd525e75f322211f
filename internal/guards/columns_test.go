package guards

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the maximum width of a line of Markdown, in characters.
const maxColumns = 100

var (
	// listMark is the part of a line before its text: indentation, a list mark, a quote mark.
	listMark = regexp.MustCompile(`^\s*(?:(?:[-*+]|\d+\.|>)\s+)*`)
	// linkOnly matches a text that consists of one link or image, or of the definition of a link.
	linkOnly = regexp.MustCompile(`^(?:!?\[.*\]\([^)\s]*\)\)?|\[[^\]]+\]: \S+)[.,;:]?$`)
)

// checkColumns wants Markdown lines that fit into an editor and give small diffs. Code blocks,
// tables, links on a line of their own and lines without a space cannot be wrapped, so they may be
// longer.
func checkColumns(tr *tree) []string {
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		if path.Ext(name) != ".md" {
			continue
		}
		code := false
		for i, line := range strings.Split(string(tr.text[name]), "\n") {
			fence := strings.HasPrefix(strings.TrimSpace(line), "```")
			if fence {
				code = !code
			}
			n := utf8.RuneCountInString(line)
			text := line[len(listMark.FindString(line)):]
			if fence || code || n <= maxColumns || strings.HasPrefix(text, "|") || linkOnly.MatchString(text) || !strings.Contains(text, " ") {
				continue
			}
			complaints = append(complaints, fmt.Sprintf("%s:%d: %d columns, more than %d: wrap the line", name, i+1, n, maxColumns))
		}
	}
	return complaints
}

func TestColumns(t *testing.T) { passes(t, checkColumns) }

func TestColumnsPlanted(t *testing.T) {
	words := func(n int) string { return strings.Repeat("x ", n/2-1) + "xx" }
	catches(t, checkColumns, []plant{
		{"at the limit", "-- a.md --\n" + words(100) + "\n", ""},
		{"over the limit", "-- docs/a.md --\n# Title\n\n" + words(102) + "\n", "docs/a.md:3: 102 columns"},
		{"characters of several bytes", "-- a.md --\n" + strings.Repeat("é ", 50) + "\n", ""},
		{"in a list", "-- a.md --\n- " + words(100) + "\n", "a.md:1: 102 columns"},
		{"in a code block", "-- a.md --\n```sh\n" + words(200) + "\n```\nshort\n", ""},
		{"after a code block", "-- a.md --\n```sh\nmake\n```\n" + words(102) + "\n", "a.md:4"},
		{"a table", "-- a.md --\n| " + words(200) + " |\n", ""},
		{"a link on its own", "-- a.md --\n- [a long text](https://example.com/" + strings.Repeat("x", 100) + ").\n", ""},
		{"an image", "-- a.md --\n![a picture](images/" + strings.Repeat("x", 100) + ".png)\n", ""},
		{"the target of a link", "-- a.md --\n[a]: https://example.com/" + strings.Repeat("x", 100) + "\n", ""},
		{"a link in a sentence", "-- a.md --\nsee [a](https://example.com/" + strings.Repeat("x", 100) + ") for more\n", "a.md:1"},
		{"no space", "-- a.md --\n" + strings.Repeat("x", 200) + "\n", ""},
		{"not Markdown", "-- a.txt --\n" + words(200) + "\n", ""},
	})
}
