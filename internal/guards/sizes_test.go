package guards

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	maxFile     = 500 // lines, of Go and JavaScript files
	maxFunction = 80  // lines, from func to the closing brace
	maxMethods  = 40  // of one type, over all files of its package
)

// exceptions lists the files, functions and types that may exceed a limit, each with its reason.
// The guard also complains about an exception that is not needed, so that the lists stay up to
// date.
type exceptions struct {
	files     map[string]string // by path
	functions map[string]string // by "path: name", for a method "path: Type.name"
	types     map[string]string // by "directory: Type"
}

var allowed = exceptions{
	files: map[string]string{
		"clients/js/src/publisher.js": "one queue with one state, and all of its parts share every field",
	},
	types: map[string]string{
		"internal/dashboard: visit": "one request to the dashboard: it has a method for each page and form",
		"internal/api: call":        "one request to the interface: it has a method for each endpoint",
		"internal/access: Access":   "projects, keys and rate windows share one lock; each of its files has the methods for one of them",
	},
}

// checkSizes wants files, functions and types that a reader can take in at once.
func checkSizes(tr *tree) []string { return sizes(tr, allowed) }

func sizes(tr *tree, allowed exceptions) []string {
	var complaints []string
	used := map[string]bool{}
	check := func(reasons map[string]string, name, unit string, n, limit int, advice string) {
		if n <= limit {
			return
		}
		used[name] = true
		if reasons[name] == "" {
			complaints = append(complaints, fmt.Sprintf("%s has %d %s, more than %d: %s, or name the reason in internal/guards",
				name, n, unit, limit, advice))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tr.text)) {
		switch path.Ext(name) {
		case ".go", ".js", ".mjs":
			if !slices.Contains(vendored, name) {
				check(allowed.files, name, "lines", bytes.Count(tr.text[name], []byte("\n")), maxFile, "split it by topic")
			}
		}
	}
	methods := map[string]int{}
	for _, s := range tr.goFiles {
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := f.Name.Name
			if receiver := receiver(f); receiver != "" {
				methods[typeName(s, receiver)]++
				name = receiver + "." + name
			}
			n := tr.fset.Position(f.End()).Line - tr.fset.Position(f.Pos()).Line + 1
			check(allowed.functions, s.path+": "+name, "lines", n, maxFunction, "split it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		check(allowed.types, name, "methods", methods[name], maxMethods, "move a part of its state into a type of its own")
	}
	for _, reasons := range []map[string]string{allowed.files, allowed.functions, allowed.types} {
		for _, name := range slices.Sorted(maps.Keys(reasons)) {
			if !used[name] {
				complaints = append(complaints, name+" is an exception in internal/guards that is not needed: remove it")
			}
		}
	}
	return complaints
}

// typeName returns the name of a receiver's type with its directory. A type of an external test
// package gets a different name than a type of the package itself.
func typeName(s source, receiver string) string {
	if s.test && strings.HasSuffix(s.ast.Name.Name, "_test") {
		return s.dir + " (tests): " + receiver
	}
	return s.dir + ": " + receiver
}

// receiver returns the name of the type that a method belongs to, or "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func TestSizes(t *testing.T) { passes(t, checkSizes) }

func TestSizesPlanted(t *testing.T) {
	lines := func(n int) string { return string(bytes.Repeat([]byte("\n"), n)) }
	methods := func(n int) string {
		var b bytes.Buffer
		for i := range n {
			fmt.Fprintf(&b, "func (t *T) m%d() {}\n", i)
		}
		return b.String()
	}
	file := "-- a.go --\npackage a\n" // one line
	catches(t, func(tr *tree) []string { return sizes(tr, exceptions{}) }, []plant{
		{"a file at the limit", file + lines(499), ""},
		{"a long file", file + lines(500), "a.go has 501 lines"},
		{"a long test file", "-- a_test.go --\npackage a\n" + lines(500), "a_test.go has 501 lines"},
		{"JavaScript at the limit", "-- a.js --\n" + lines(500), ""},
		{"a long JavaScript file", "-- src/a.js --\n" + lines(501), "src/a.js has 501 lines"},
		{"a long JavaScript module", "-- testdata/a.mjs --\n" + lines(501), "testdata/a.mjs has 501 lines"},
		{"JavaScript of another project", "-- internal/dashboard/assets/uplot.js --\n" + lines(501), ""},
		{"a function at the limit", file + "func f() {\n" + lines(78) + "}\n", ""},
		{"a long function", file + "func f() {\n" + lines(79) + "}\n", "a.go: f has 81 lines"},
		{"a long method", file + "type T[K any] int\nfunc (t *T[K]) f() {\n" + lines(79) + "}\n", "a.go: T.f has 81 lines"},
		{"a type at the limit", file + methods(40), ""},
		{"a type with many methods", file + methods(41), ".: T has 41 methods"},
		{"a type with methods in two files", file + methods(40) + "-- b.go --\npackage a\nfunc (T) more() {}\n", ".: T has 41 methods"},
		{"types of one name in two packages", file + methods(40) + "-- b/b.go --\npackage b\nfunc (T) more() {}\n", ""},
	})
	t.Run("with a reason", func(t *testing.T) {
		tr := planted(t, file+"func f() {\n"+lines(600)+"}\n"+methods(41))
		with := exceptions{
			files:     map[string]string{"a.go": "planted"},
			functions: map[string]string{"a.go: f": "planted"},
			types:     map[string]string{".: T": "planted"},
		}
		if got := sizes(tr, with); len(got) > 0 {
			t.Errorf("got %q", got)
		}
		with.functions["a.go: g"] = "not needed"
		if got := sizes(tr, with); len(got) != 1 {
			t.Errorf("got %q, want one complaint about a.go: g", got)
		}
	})
}
