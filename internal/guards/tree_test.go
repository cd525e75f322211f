package guards

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// tree is the project as guards see it.
type tree struct {
	files fs.FS
	fset  *token.FileSet
	text  map[string][]byte // every text file, by path
	goes  []source          // the Go files among them, in order of paths
}

// source is a Go file.
type source struct {
	path string
	dir  string // "." at the root
	test bool
	ast  *ast.File
}

// left is what is not ours to check: what tools put into the tree, and what .gitignore names.
var left = []string{".git", "bin", "weir-data", "node_modules", "bench/results"}

func load(t *testing.T, files fs.FS) *tree {
	t.Helper()
	tr := &tree{files: files, fset: token.NewFileSet(), text: map[string][]byte{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(left, name) || slices.Contains(left, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil // in a worktree .git is a file
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return tr.add(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func (tr *tree) add(name string) error {
	b, err := fs.ReadFile(tr.files, name)
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
	tr.goes = append(tr.goes, source{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), file})
	return nil
}

// at is the place of a node as an editor reads it.
func (tr *tree) at(n ast.Node) string {
	p := tr.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

var (
	once  sync.Once
	whole *tree
)

// project is the tree that this package is part of.
func project(t *testing.T) *tree {
	t.Helper()
	once.Do(func() { whole = load(t, os.DirFS("../..")) })
	if whole == nil || !strings.HasPrefix(string(whole.text["go.mod"]), "module weir\n") {
		t.Fatal("../.. is not the root of the module, or was not read")
	}
	return whole
}

// planted is a tree made of the files in an archive of "-- name --" lines.
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
	return load(t, files)
}

// holds demands that a guard finds nothing in the project.
func holds(t *testing.T, guard func(*tree) []string) {
	t.Helper()
	for _, complaint := range guard(project(t)) {
		t.Error(complaint)
	}
}

// bite is a tree with one fault.
type bite struct {
	name    string
	archive string
	want    string // a part of the only complaint; empty: there is none
}

func bites(t *testing.T, guard func(*tree) []string, plants []bite) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			got := guard(planted(t, p.archive))
			switch {
			case p.want == "" && len(got) > 0:
				t.Errorf("complains without reason: %q", got)
			case p.want != "" && (len(got) != 1 || !strings.Contains(got[0], p.want)):
				t.Errorf("got %q, want one complaint with %q", got, p.want)
			}
		})
	}
}
