package guards

import (
	"bytes"
	"fmt"
	"go/ast"
	"testing"
)

const (
	maxFile     = 500 // lines
	maxFunction = 80  // lines, from func to the closing brace
)

// longFiles and longFunctions may be longer, each for the reason beside it. A function is "path: name", a method
// "path: Type.name".
var (
	longFiles     = map[string]string{}
	longFunctions = map[string]string{}
)

// checkSizes wants files and functions that can be read at once.
func checkSizes(tr *tree) []string {
	return sizes(tr, longFiles, longFunctions)
}

func sizes(tr *tree, longFiles, longFunctions map[string]string) []string {
	var complaints []string
	used := map[string]bool{}
	for _, s := range tr.goFiles {
		if n := bytes.Count(tr.text[s.path], []byte("\n")); n > maxFile {
			used[s.path] = true
			if longFiles[s.path] == "" {
				complaints = append(complaints, fmt.Sprintf("%s has %d lines, more than %d: split it by nouns, "+
					"or name the reason in internal/guards", s.path, n, maxFile))
			}
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := tr.fset.Position(f.End()).Line - tr.fset.Position(f.Pos()).Line + 1
			name := s.path + ": " + functionName(f)
			if n <= maxFunction {
				continue
			}
			used[name] = true
			if longFunctions[name] == "" {
				complaints = append(complaints, fmt.Sprintf("%s has %d lines, more than %d: split it, "+
					"or name the reason in internal/guards", name, n, maxFunction))
			}
		}
	}
	for _, reasons := range []map[string]string{longFiles, longFunctions} {
		for name := range reasons {
			if !used[name] {
				complaints = append(complaints, name+" is excused for its length in internal/guards, and needs no excuse: take it out")
			}
		}
	}
	return complaints
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
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
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

func TestSizes(t *testing.T) { passes(t, checkSizes) }

func TestSizesPlanted(t *testing.T) {
	lines := func(n int) string { return string(bytes.Repeat([]byte("\n"), n)) }
	file := "-- a.go --\npackage a\n" // one line
	catches(t, checkSizes, []plant{
		{"as long as a file may be", file + lines(499), ""},
		{"too long a file", file + lines(500), "a.go has 501 lines"},
		{"too long a test", "-- a_test.go --\npackage a\n" + lines(500), "a_test.go has 501 lines"},
		{"as long as a function may be", file + "func f() {\n" + lines(78) + "}\n", ""},
		{"too long a function", file + "func f() {\n" + lines(79) + "}\n", "a.go: f has 81 lines"},
		{"too long a method", file + "type T[K any] int\nfunc (t *T[K]) f() {\n" + lines(79) + "}\n", "a.go: T.f has 81 lines"},
	})
	t.Run("with a reason", func(t *testing.T) {
		tr := planted(t, file+"func f() {\n"+lines(600)+"}\n")
		reasons := map[string]string{"a.go": "planted"}
		functions := map[string]string{"a.go: f": "planted"}
		if got := sizes(tr, reasons, functions); len(got) > 0 {
			t.Errorf("got %q", got)
		}
		functions["a.go: g"] = "gone"
		if got := sizes(tr, reasons, functions); len(got) != 1 {
			t.Errorf("got %q, want one complaint about a.go: g", got)
		}
	})
}
