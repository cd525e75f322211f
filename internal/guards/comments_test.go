package guards

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// checkComments wants one package comment per package, directly above the package clause and in the
// form that go doc expects. Test files need no package comment, because go doc would not show it.
func checkComments(tr *tree) []string {
	type pkg struct{ name, first string }
	packages := map[string]*pkg{}
	var complaints []string
	for _, s := range tr.goFiles {
		if s.test {
			continue
		}
		p := packages[s.dir]
		if p == nil {
			p = &pkg{name: s.ast.Name.Name}
			packages[s.dir] = p
		}
		if s.ast.Doc == nil {
			continue
		}
		if p.first != "" {
			complaints = append(complaints, fmt.Sprintf("%s: a second comment of package %s, after %s: keep one",
				s.path, p.name, p.first))
			continue
		}
		p.first = s.path
		opening := "Package " + p.name + " "
		if p.name == "main" {
			opening = "Command "
		}
		if !strings.HasPrefix(s.ast.Doc.Text(), opening) {
			complaints = append(complaints, fmt.Sprintf("%s: the package comment must begin with %q", s.path, opening))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if p := packages[dir]; p.first == "" {
			complaints = append(complaints, fmt.Sprintf("%s: package %s has no comment directly above a package clause "+
				"(no blank line between them)", dir, p.name))
		}
	}
	return complaints
}

func TestPackageComments(t *testing.T) { passes(t, checkComments) }

func TestPackageCommentsPlanted(t *testing.T) {
	catches(t, checkComments, []plant{
		{"one", "-- a/a.go --\n// Package a is.\npackage a\n-- a/b.go --\npackage a\n", ""},
		{"for a command", "-- a/a.go --\n// Command a does.\npackage main\n", ""},
		{"none", "-- a/a.go --\npackage a\n", "package a has no comment"},
		{"detached", "-- a/a.go --\n// Package a is.\n\npackage a\n", "no blank line"},
		{"two", "-- a/a.go --\n// Package a is.\npackage a\n-- a/b.go --\n// Package a is not.\npackage a\n", "a/b.go: a second comment"},
		{"with another opening", "-- a/a.go --\n// Some code.\npackage a\n", `begin with "Package a "`},
	})
}
