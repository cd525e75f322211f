package manual

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/docs"
)

// block is a piece of code in a paper. The words after the language say what becomes of it:
//
//	sh                 run it, where the blocks before it were run, and with their variables
//	sh serve           run it in the background: a server
//	sh follow          run it until it printed what the block after it shows
//	sh build           not run: the program is built for all tests at once
//	LANGUAGE output    what the block before it prints; … stands for anything, on a line of its own for any number of lines
//	LANGUAGE file=F    save it as F
//	text browser=F     what a browser shows of the page F
type block struct {
	language string
	words    []string
	text     string
	line     int
}

func (b block) is(word string) bool { return slices.Contains(b.words, word) }

func (b block) value(name string) string {
	for _, w := range b.words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			return v
		}
	}
	return ""
}

// blocksOf finds the code of a paper.
func blocksOf(t *testing.T, paper string) []block {
	t.Helper()
	text, err := docs.Files.ReadFile(paper)
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	var open *block
	for i, line := range strings.SplitAfter(string(text), "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			words := strings.Fields(info)
			open = &block{line: i + 1}
			if len(words) > 0 {
				open.language, open.words = words[0], words[1:]
			}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: a block does not end", paper, open.line)
	}
	return all
}

// pattern is what an output block allows; all tells whether the output must end where the block does.
func (b block) pattern(all bool) *regexp.Regexp {
	var p strings.Builder
	p.WriteString(`^\s*`)
	lines := strings.Split(strings.TrimSpace(b.text), "\n")
	for i, line := range lines {
		if strings.TrimSpace(line) == "…" {
			p.WriteString(`[\s\S]*?`)
			continue
		}
		p.WriteString(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", `[^\n]*`))
		if i < len(lines)-1 {
			p.WriteString(`\s*?\n`)
		}
	}
	if all {
		p.WriteString(`\s*$`)
	}
	return regexp.MustCompile(p.String())
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		block, output string
		all, fits     bool
	}{
		{"a\nb\n", "a\nb\n", true, true},
		{"a\nb\n", "a\nb\nc\n", true, false},
		{"a\nb\n", "a\nb\nc\n", false, true},
		{"a\nb\n", "x a\nb\n", false, false},
		{`{"ts":"…"}`, `{"ts":"2026"}`, true, true},
		{`{"ts":"…"}`, "{\"ts\":\"20\n26\"}", true, false},
		{"a\n…\nb\n", "a\n1\n2\nb\n", true, true},
		{"a\n…\nb\n", "a\nb\n", true, true},
		{"…\nb (1)\n", "b (1)\n", true, true},
	} {
		if got := (block{text: c.block}).pattern(c.all).MatchString(c.output); got != c.fits {
			t.Errorf("%q, %q: %v", c.block, c.output, got)
		}
	}
}
