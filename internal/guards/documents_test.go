package guards

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// documents lists files that must exist, with the maximum number of lines of each. 0 means no
// limit.
var documents = map[string]int{
	"README.md": 60, "ARCHITECTURE.md": 149, "CONTRIBUTING.md": 0, "CHANGELOG.md": 0, "SECURITY.md": 0, "LICENSE": 0,
	"docs/decisions.md": 0, "docs/operating.md": 0, "docs/cli.md": 0,
}

// checkDocuments wants every document to exist and to stay within its number of lines, so that
// people read it.
func checkDocuments(tr *tree) []string {
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		text, ok := tr.text[name]
		n := strings.Count(string(text), "\n")
		switch limit := documents[name]; {
		case !ok:
			complaints = append(complaints, name+" is missing")
		case limit > 0 && n > limit:
			complaints = append(complaints, fmt.Sprintf("%s has %d lines, more than %d: move the rest into docs/", name, n, limit))
		}
	}
	return complaints
}

func TestDocuments(t *testing.T) { passes(t, checkDocuments) }

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// checkLinks wants every link to a file of the project to lead to a file that exists.
func checkLinks(tr *tree) []string {
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(tr.text[name]), -1) {
			// Links that begin with a slash are pages of the server; internal/manual checks those.
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") || strings.HasPrefix(m[1], "/") {
				continue
			}
			if _, err := fs.Stat(tr.files, path.Join(path.Dir(name), m[1])); err != nil {
				complaints = append(complaints, fmt.Sprintf("%s: the link to %s leads nowhere", name, m[1]))
			}
		}
	}
	return complaints
}

func TestLinks(t *testing.T) { passes(t, checkLinks) }

func TestLinksPlanted(t *testing.T) {
	catches(t, checkLinks, []plant{
		{"good", "-- docs/a.md --\n[b](../b.md#x) [c](https://example.com)\n-- b.md --\n", ""},
		{"bad", "-- docs/a.md --\n[b](b.md)\n-- b.md --\n", "docs/a.md: the link to b.md leads nowhere"},
	})
}

var (
	target   = regexp.MustCompile(`(?m)^([a-z]+):(?:.*## .+)?`)
	shown    = regexp.MustCompile(`(?m)^([a-z]+):.*## .+$`)
	commands = regexp.MustCompile("(?ms)^## Quick start\n.*?^```[a-z]*\n(.*?)^```$")
	mentions = regexp.MustCompile("(?m)`make ([a-z]+)|^make ([a-z]+)")
)

// wanted are the targets of the Makefile that people and scripts rely on.
var wanted = []string{"build", "test", "bench", "lint", "run"}

// checkMake wants a Makefile with all wanted targets, a README whose quick start has exactly two
// commands, and documents that name only targets of the Makefile.
func checkMake(tr *tree) []string {
	var complaints []string
	targets, help := names(target, tr.text["Makefile"]), names(shown, tr.text["Makefile"])
	for _, name := range wanted {
		if !slices.Contains(help, name) {
			complaints = append(complaints, fmt.Sprintf("Makefile: target %s is missing, or has no ## text for help", name))
		}
	}
	start := ""
	if m := commands.FindSubmatch(tr.text["README.md"]); m != nil {
		start = string(m[1])
	}
	var lines []string
	for line := range strings.Lines(start) {
		command, _, _ := strings.Cut(line, "#")
		if command = strings.TrimSpace(command); command != "" {
			lines = append(lines, command)
		}
	}
	if !slices.Equal(lines, []string{"make run", "make test"}) {
		complaints = append(complaints, fmt.Sprintf("README.md: the quick start is %q, not `make run` and `make test`", lines))
	}
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range mentions.FindAllStringSubmatch(string(tr.text[name]), -1) {
			if word := m[1] + m[2]; !slices.Contains(targets, word) {
				complaints = append(complaints, fmt.Sprintf("%s: the Makefile has no target `make %s`", name, word))
			}
		}
	}
	return complaints
}

func names(pattern *regexp.Regexp, text []byte) []string {
	var all []string
	for _, m := range pattern.FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

func TestMake(t *testing.T) { passes(t, checkMake) }

func TestMakePlanted(t *testing.T) {
	makefile := "-- Makefile --\nbuild: ## b\ntest: build ## t\nbench: ## b\nlint: ## l\nrun: ## r\nquiet:\n"
	readme := "-- README.md --\n## Quick start\n\n```sh\nmake run    # starts\nmake test   # tests\n```\n"
	catches(t, checkMake, []plant{
		{"good", makefile + readme + "`make quiet` works\n", ""},
		{"no help", strings.Replace(makefile, "run: ## r", "run:", 1) + readme, "target run is missing"},
		{"no target", makefile + readme + "-- docs/a.md --\ntry `make coffee`\n", "docs/a.md: the Makefile has no target `make coffee`"},
		{"a third command", makefile + strings.Replace(readme, "make test ", "make lint\nmake test ", 1), "the quick start is"},
		{"no quick start", makefile + "-- README.md --\n", "the quick start is []"},
	})
}

// Running make without a target lists every target that has a help text, and make knows each target
// of the list. The test only asks make what it would run (-n).
func TestMakeHelp(t *testing.T) {
	tr := project(t)
	out, err := runMake("")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no make on this machine")
	}
	if err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	got := names(regexp.MustCompile(`(?m)^ +make ([a-z]+) `), out)
	if want := names(shown, tr.text["Makefile"]); !slices.Equal(got, want) {
		t.Errorf("help shows %q, the Makefile has %q", got, want)
	}
	for _, name := range got {
		if out, err := runMake("-n", name); err != nil {
			t.Errorf("make -n %s: %v\n%s", name, err, out)
		}
	}
}

func runMake(args ...string) ([]byte, error) {
	cmd := exec.Command("make", slices.DeleteFunc(args, func(s string) bool { return s == "" })...)
	cmd.Dir = "../.."
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") { // a make that runs this test sets these variables
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd.CombinedOutput()
}

// Continuous integration runs the same command as people do.
func TestCI(t *testing.T) {
	tr := project(t)
	info, err := fs.Stat(tr.files, ".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&0o111 == 0 {
		t.Error(".ci/run is not executable")
	}
	if !strings.HasSuffix(string(tr.text[".ci/run"]), "\nexec make test\n") {
		t.Error(".ci/run does not end in `exec make test`")
	}
}

// docs/decisions.md must have every decision with a number up to this one. Decisions are never
// renumbered, because code refers to them by number.
const decisions = 32

var decision = regexp.MustCompile(`(?m)^### D(\d+) \S`)

// checkDecisions wants every decision once and in order, and every error code explained.
func checkDecisions(tr *tree) []string {
	text := tr.text["docs/decisions.md"]
	var complaints []string
	last := 0
	for _, name := range names(decision, text) {
		n, _ := strconv.Atoi(name)
		if n <= last || last < decisions && n > last+1 { // higher numbers may be missing, because decisions may be implemented in any order
			return append(complaints, fmt.Sprintf("docs/decisions.md: found D%d where D%d belongs", n, last+1))
		}
		last = n
	}
	if n := len(names(decision, text)); n < decisions {
		complaints = append(complaints, fmt.Sprintf("docs/decisions.md ends at D%d, not at D%d", n, decisions))
	}
	for _, code := range codes(tr) {
		if !strings.Contains(string(text), "`"+code+"`") {
			complaints = append(complaints, fmt.Sprintf("docs/decisions.md does not mention the code `%s`", code))
		}
	}
	return complaints
}

// codes returns the values of the constants of type Code in the root package.
func codes(tr *tree) []string {
	var all []string
	for _, s := range tr.goFiles {
		if s.dir != "." || s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Code" {
					continue
				}
				for _, value := range v.Values {
					if lit, ok := value.(*ast.BasicLit); ok {
						code, _ := strconv.Unquote(lit.Value)
						all = append(all, code)
					}
				}
			}
		}
	}
	return all
}

func TestDecisions(t *testing.T) {
	passes(t, checkDecisions)
	if n := len(codes(project(t))); n != 22 {
		t.Errorf("found %d error codes in the root, the interface has 22", n)
	}
}

func TestDecisionsPlanted(t *testing.T) {
	var all strings.Builder
	for n := range decisions {
		fmt.Fprintf(&all, "### D%d Title\n", n+1)
	}
	good := "-- docs/decisions.md --\n" + all.String()
	code := "-- errors.go --\npackage weir\nconst NotFound Code = \"not_found\"\n"
	catches(t, checkDecisions, []plant{
		{"all", good + "`not_found`\n" + code, ""},
		{"one missing", strings.Replace(good, "### D"+"7 Title\n", "", 1), "found D8 where D7 belongs"},
		{"the last missing", strings.Replace(good, "### D"+"32 Title\n", "", 1), "ends at D31"},
		{"a code missing", good + "`not_found_either`\n" + code, "the code `not_found`"},
	})
}
