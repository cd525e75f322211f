package guards

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// tree holds the files that guards check.
type tree struct {
	files   fs.FS
	fset    *token.FileSet
	text    map[string][]byte // every text file, by path
	goFiles []source          // the Go files outside testdata, in order of paths
}

// source is a Go file.
type source struct {
	path string
	dir  string // "." at the root
	test bool
	ast  *ast.File
}

// vendored are files that other projects wrote. Guards about style leave them alone.
var vendored = []string{"LICENSE", "internal/dashboard/assets/uplot.js", "internal/dashboard/assets/uplot.css", "internal/dashboard/assets/uplot.LICENSE"}

func load(t *testing.T, files fs.FS, names []string) *tree {
	t.Helper()
	tr := &tree{files: files, fset: token.NewFileSet(), text: map[string][]byte{}}
	for _, name := range names {
		if err := tr.add(name); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// add reads a file, unless it is binary, and parses it if it is Go.
func (tr *tree) add(name string) error {
	b, err := fs.ReadFile(tr.files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted, and the deletion is not committed
	}
	if err != nil {
		return err
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return nil
	}
	tr.text[name] = b
	if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
		return nil
	}
	file, err := parser.ParseFile(tr.fset, name, b, parser.ParseComments)
	if err != nil {
		return err
	}
	tr.goFiles = append(tr.goFiles, source{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), file})
	return nil
}

// at returns the position of a node in the form that editors understand.
func (tr *tree) at(n ast.Node) string {
	p := tr.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

var (
	once  sync.Once
	whole *tree
)

// project returns the tree of this project: all files but those that .gitignore lists, because tools
// write such files, possibly at this moment. The files are read once for all tests.
func project(t *testing.T) *tree {
	t.Helper()
	once.Do(func() {
		cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal("the guards need a git repository: git ls-files: ", err)
		}
		names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
		slices.Sort(names)
		whole = load(t, os.DirFS("../.."), names)
	})
	if whole == nil || !strings.HasPrefix(string(whole.text["go.mod"]), "module weir\n") {
		t.Fatal("../.. is not the root of the module, or could not be read")
	}
	return whole
}

// planted returns a tree of the files in an archive, where a line "-- name --" starts a file.
func planted(t *testing.T, archive string) *tree {
	t.Helper()
	files := fstest.MapFS{}
	var name string
	for line := range strings.Lines(archive) {
		if s, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(s, " --\n")
			files[name] = &fstest.MapFile{Mode: 0o644}
		} else if name != "" {
			files[name].Data = append(files[name].Data, line...)
		}
	}
	return load(t, files, slices.Sorted(maps.Keys(files)))
}

// passes reports every complaint that a guard has about the project.
func passes(t *testing.T, guard func(*tree) []string) {
	t.Helper()
	for _, complaint := range guard(project(t)) {
		t.Error(complaint)
	}
}

// plant is a small tree with one fault, or with none.
type plant struct {
	name    string
	archive string
	want    string // part of the only complaint; empty if there must be none
}

// catches runs a guard on each plant and wants exactly the complaint that the plant expects. A
// guard that never complains would protect nothing.
func catches(t *testing.T, guard func(*tree) []string, plants []plant) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			got := guard(planted(t, p.archive))
			switch {
			case p.want == "" && len(got) > 0:
				t.Errorf("complains about a correct tree: %q", got)
			case p.want != "" && (len(got) != 1 || !strings.Contains(got[0], p.want)):
				t.Errorf("got %q, want one complaint that contains %q", got, p.want)
			}
		})
	}
}
