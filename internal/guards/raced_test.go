package guards

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var plainPackages, sweepPackages = regexp.MustCompile(`(?m)^plain='([^']*)'`), regexp.MustCompile(`(?m)^plain=.* sweeps='([^']*)'`)

// checkRaced compares the packages with the two lists in tools/test. A package that the script runs
// only without the race detector must not start goroutines. A sweep is a test that damages or
// crashes one disk after another, and leaves out most of them under the race detector. A package
// with sweeps must also run without the race detector, because otherwise those cases never run.
func checkRaced(tr *tree) []string {
	list := func(pattern *regexp.Regexp) []string {
		m := pattern.FindSubmatch(tr.text["tools/test"])
		if m == nil {
			return nil
		}
		return strings.Fields(string(m[1]))
	}
	plain, sweeps := list(plainPackages), list(sweepPackages)
	if plain == nil || sweeps == nil {
		return []string{"tools/test does not list the packages that run without the race detector"}
	}
	var complaints []string
	for _, s := range tr.goFiles {
		if slices.Contains(plain, "./"+s.dir) {
			ast.Inspect(s.ast, func(n ast.Node) bool {
				if concurrent(n) {
					complaints = append(complaints, tr.at(n)+": starts a goroutine, but tools/test runs "+s.dir+" without the race detector")
				}
				return true
			})
		}
		const faulty = "weir/internal/disk/faulty"
		if n := append(calls(s.ast, faulty, "Cases"), calls(s.ast, faulty, "LeftOut")...); len(n) > 0 && !slices.Contains(sweeps, "./"+s.dir) {
			complaints = append(complaints, tr.at(n[0])+": a sweep, but "+s.dir+" is not in the list of sweeps in tools/test")
		}
	}
	return complaints
}

// concurrent reports whether a node starts a goroutine.
func concurrent(n ast.Node) bool {
	if _, ok := n.(*ast.GoStmt); ok {
		return true
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (method.Sel.Name == "Go" || method.Sel.Name == "Parallel")
}

func TestRaced(t *testing.T) { passes(t, checkRaced) }

func TestRacedPlanted(t *testing.T) {
	script := "-- tools/test --\n#!/bin/sh\nplain='./a ./b' sweeps='./c'\n"
	sweep := "\nimport \"weir/internal/disk/faulty\"\nvar n = faulty.Cases(1)\n"
	catches(t, checkRaced, []plant{
		{"a goroutine", script + "-- b/b.go --\npackage b\nfunc f() { go f() }\n", "b/b.go:2: starts a goroutine"},
		{"a wait group", script + "-- a/a_test.go --\npackage a\nfunc f() { g.Go(f) }\n", "a/a_test.go:2: starts a goroutine"},
		{"a parallel test", script + "-- a/a_test.go --\npackage a\nfunc f() { t.Parallel() }\n", "a/a_test.go:2: starts a goroutine"},
		{"a goroutine under the race detector", script + "-- c/c.go --\npackage c\nfunc f() { go f() }\n", ""},
		{"a sweep", script + "-- c/c_test.go --\npackage c" + sweep, ""},
		{"a sweep that never runs in full", script + "-- a/a_test.go --\npackage a" + sweep, "a/a_test.go:3: a sweep"},
		{"no list", "-- tools/test --\n#!/bin/sh\n", "tools/test does not list"},
	})
}
