package enginetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unchecked lists the sentences of package engine that no case quotes. Each value is the reason.
var unchecked = map[string]string{
	"Restore must not keep the pointers: the engine may use the same memory for the next header.": "this is a duty of judges, not of engines",
	// These sentences are about faults of a disk or a network, and about repairs. The suite knows
	// only the interfaces and cannot cause such faults. The tests of the engines named here check
	// the sentences.
	"ErrFull not appended: no space was left, and the judge was not asked":                                                                   "journal: TestFullDisk; jetstream: TestFull",
	"ErrReadOnly unknown: the store takes no more writes, the entry cannot be read now, and it may or may not be in the log after a restart": "journal: TestEveryCallFails",
	"If the store fails before it has stored an admitted entry, Commit never reports that entry.":                                            "journal: TestEveryCallFails",
	"ErrDamaged (wrapped): the entry is there but fails its check.":                                                                          "journal: TestOlderRecordDamaged",
	"A damaged entry is never served.":                                                                                            "journal: TestOlderRecordDamaged",
	"ErrClock not appended: the clock of this node is wrong, and the judge was not asked":                                         "jetstream: TestWrongClock",
	"ErrOlder not appended: another node runs an older version that could not read it":                                            "jetstream: TestTwoVersions",
	"ErrUnavailable unknown: the store did not answer in time":                                                                    "jetstream: TestNoQuorum",
	"ErrUnavailable: the judge may not know everything.":                                                                          "jetstream: TestNoQuorum",
	"ErrUnavailable: the watchers may not have received every change.":                                                            "jetstream: TestNoQuorum",
	"ErrBehind not appended; every method returns it from then on, and the log must be closed and opened again":                   "jetstream: TestRefreshTooFarBehind",
	"Behind reports that this process can no longer catch up with what other processes appended and removed.":                     "jetstream: TestRefreshTooFarBehind",
	"The log must be closed and opened again.":                                                                                    "jetstream: TestRefreshTooFarBehind",
	"The engine frees their space in the background.":                                                                             "no method shows the space; journal: TestReclaim",
	"It never blocks on a disk.":                                                                                                  "a test without timing cannot tell",
	"To save wake-ups, Flush may wait for a disk that takes a fraction of a millisecond, but not for one that is slower or full.": "journal: TestFlushOnASlowDisk",
	"Held never blocks on a disk.":                                                                                                "a test without timing cannot tell",
	"Outline never blocks on a disk.":                                                                                             "a test without timing cannot tell",

	"If the second result is false, only Memory is set, and the log must be opened to learn the rest.": "it is up to the engine when it returns false",

	// These sentences say what the caller or the judge must do. An engine cannot break them.
	"It holds the log's lock, so the function visit must be quick and must not call the log.": "a demand on the caller",
	"Admit must not block and must not call the engine.":                                      "a demand on the judge",
	"Two entries of one log must never be admitted under the same sequence.":                  "a demand on the judge",
	"It must not block.": "a demand on the judge",
	"Placed must not block and must not call the engine.":              "a demand on the proposer",
	"The function done must not block.":                                "a demand on the caller",
	"The caller must not change value afterwards.":                     "a demand on the caller",
	"Follow must not block.":                                           "a demand on the judge",
	"Note must not block and must not call the engine.":                "a demand on the judge",
	"The function visit must not block, and must not call the engine.": "a demand on the caller",
}

// Every sentence that a case quotes must be in package engine, word for word.
func TestQuotations(t *testing.T) {
	source, err := os.ReadFile("../engine.go")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^\s*//|//`).ReplaceAllString(string(source), " ")
	text = strings.Join(strings.Fields(text), " ")
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are named %q", c.name)
		}
		seen[c.name] = true
		if len(c.promise) == 0 {
			t.Errorf("%s: quotes no promise", c.name)
		}
		for _, p := range c.promise {
			if !strings.Contains(text, p) {
				t.Errorf("%s: package engine does not say %q", c.name, p)
			}
		}
	}
}

// Every sentence that promises something in package engine must be quoted by a case or listed in
// unchecked.
func TestEveryPromiseIsQuoted(t *testing.T) {
	excused := map[string]bool{}
	all := promises(t)
	if len(all) < 60 {
		t.Fatalf("found only %d sentences", len(all))
	}
	for _, sentence := range all {
		reason, excuse := unchecked[sentence]
		excused[sentence] = excuse
		left := unquoted(sentence)
		switch {
		case left == "" && excuse:
			t.Errorf("listed in unchecked, but a case quotes it: %q", sentence)
		case left != "" && !excuse:
			t.Errorf("no case quotes the part %q of the sentence %q", left, sentence)
		case excuse:
			exists(t, reason)
		}
	}
	for sentence := range unchecked {
		if !excused[sentence] {
			t.Errorf("listed in unchecked, but package engine does not say it: %q", sentence)
		}
	}
}

// exists checks the tests that a reason in unchecked names: each test must exist.
func exists(t *testing.T, reason string) {
	t.Helper()
	for _, named := range regexp.MustCompile(`(\w+): (Test\w+)`).FindAllStringSubmatch(reason, -1) {
		files, err := filepath.Glob("../" + named[1] + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "func "+named[2]+"(")
		}
		if !found {
			t.Errorf("%s has no %s", named[1], named[2])
		}
	}
}

// unquoted returns the part of a sentence that no case quotes. Several cases may each quote a part
// of one sentence.
func unquoted(sentence string) string {
	covered := make([]bool, len(sentence))
	for _, c := range cases() {
		for _, p := range c.promise {
			from := strings.Index(sentence, p)
			to := from + len(p)
			if strings.Contains(p, sentence) { // the quotation contains several sentences
				from, to = 0, len(sentence)
			}
			for i := from; from >= 0 && i < to; i++ {
				covered[i] = true
			}
		}
	}
	var left strings.Builder
	for i, is := range covered {
		if !is {
			left.WriteByte(sentence[i])
		}
	}
	if strings.Trim(left.String(), " .,:;") == "" {
		return ""
	}
	return left.String()
}

// promises returns the sentences of the comments on interfaces and their methods, and on the types
// that name logs and revisions.
func promises(t *testing.T) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../engine.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		types, ok := decl.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		spec := types.Specs[0].(*ast.TypeSpec)
		face, isInterface := spec.Type.(*ast.InterfaceType)
		if isInterface || spec.Name.Name == "LogID" || spec.Name.Name == "Revision" {
			all = append(all, sentences(types.Doc.Text())...)
		}
		if isInterface {
			for _, m := range face.Methods.List {
				all = append(all, sentences(m.Doc.Text())...)
			}
		}
	}
	return all
}

var (
	sentenceEnd = regexp.MustCompile(`\. [A-Z]`)
	tableRow    = regexp.MustCompile(`\n\t(Err|error of)`)
)

// sentences splits a comment into sentences. Tables are indented; each row of a table counts as a
// sentence.
func sentences(comment string) (all []string) {
	for _, part := range strings.Split(tableRow.ReplaceAllString(comment, "\n\n$1"), "\n\n") {
		part = strings.Join(strings.Fields(part), " ")
		for part != "" {
			at := len(part)
			if end := sentenceEnd.FindStringIndex(part); end != nil {
				at = end[0] + 1
			}
			if !strings.HasSuffix(part[:at], ":") { // a part that ends in a colon is the title of a table, not a sentence
				all = append(all, part[:at])
			}
			part = strings.TrimSpace(part[at:])
		}
	}
	return all
}
