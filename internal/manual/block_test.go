package manual

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/docs"
)

// block is a code block of a document. The words after the language tell the tests what to do with
// it:
//
//	sh                 run it in the directory of the earlier blocks, with their variables
//	sh serve           run it in the background: it starts a server
//	sh follow          run it until it has printed the output shown in the next block
//	sh background      run it until the end of the page; it is ready when it has printed the output shown in the next block
//	sh build           do not run it: the program is built once for all tests
//	LANGUAGE output    the expected output of the previous block; … stands for any text, and on a line of its own for any number of lines
//	LANGUAGE file=F    save it as F
//	LANGUAGE excerpt=F the file F of the sources has these lines
//	text browser=F     the text that a browser shows for the page F; with at=URL, the program at this URL serves F
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

// blocksOf returns the code blocks of a document in order.
func blocksOf(t *testing.T, document string) []block {
	t.Helper()
	text, err := docs.Files.ReadFile(document)
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
		t.Fatalf("%s:%d: the code block has no closing fence", document, open.line)
	}
	return all
}

// pattern returns an expression that matches the output shown in the block. If all is true, the
// output must end where the block ends; otherwise more may follow.
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
		all, want     bool
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
		if got := (block{text: c.block}).pattern(c.all).MatchString(c.output); got != c.want {
			t.Errorf("block %q, output %q: match: %v, want %v", c.block, c.output, got, c.want)
		}
	}
}
