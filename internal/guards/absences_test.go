package guards

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// absence is something that some rooms must not know, in files that are not tests.
type absence struct {
	rooms  []string // a name with /... stands for the rooms below it too
	except bool     // the rooms are those that may
	pkg    string   // import path
	name   string   // of a function; empty: the whole package
	why    string
}

var absences = []absence{
	{[]string{"engine/..."}, false, "os", "", "files are touched through internal/disk alone, so that tests can make every call fail"},
	{[]string{"weir", "stream"}, false, "os", "", "it does no I/O"},
	{[]string{"weir", "stream", "engine/...", "hub", "disk/..."}, false, "net/http", "", "HTTP is known above the hub only"},
	{[]string{"weir", "stream"}, false, "time", "Now", "the moment is handed in"},
	{[]string{"stream"}, false, "sync", "", "the rules take no lock: whoever calls them does"},
	{[]string{"stream", "weir"}, false, "context", "", "nothing here waits"},
	{[]string{"stream", "weir"}, false, "log/slog", "", "the rules answer and never log"},
	{[]string{"cmd", "bench"}, true, "flag", "", "only cmd reads flags"},
	{[]string{""}, true, "log", "", "log/slog is the only log"},
}

func (a absence) applies(room string) bool {
	in := slices.ContainsFunc(a.rooms, func(r string) bool {
		base, below := strings.CutSuffix(r, "/...")
		return r == room || below && (base == room || strings.HasPrefix(room, base+"/"))
	})
	return in != a.except
}

func checkAbsences(tr *tree) []string {
	var complaints []string
	for _, s := range tr.goFiles {
		if s.test {
			continue
		}
		for _, a := range absences {
			if !a.applies(roomOf(s.dir)) {
				continue
			}
			if n := find(s.ast, a); n != nil {
				what := a.pkg
				if a.name != "" {
					what += "." + a.name
				}
				complaints = append(complaints, fmt.Sprintf("%s: %s does not know %s: %s", tr.at(n), roomOf(s.dir), what, a.why))
			}
		}
	}
	return complaints
}

// find returns where a file has what must be absent.
func find(file *ast.File, a absence) ast.Node {
	for _, i := range file.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p != a.pkg {
			continue
		}
		if a.name == "" {
			return i
		}
		if uses := calls(file, a.pkg, a.name); len(uses) > 0 {
			return uses[0]
		}
	}
	return nil
}

// calls returns every mention of pkg.name in a file, under whatever name the file imports the package.
func calls(file *ast.File, pkg, name string) []ast.Node {
	local := ""
	for _, i := range file.Imports {
		if p, _ := strconv.Unquote(i.Path.Value); p == pkg {
			local = pkg[strings.LastIndex(pkg, "/")+1:]
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	var found []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == local && local != "" {
				found = append(found, sel)
			}
		}
		return true
	})
	return found
}

func TestAbsences(t *testing.T) { passes(t, checkAbsences) }

func TestAbsencesPlanted(t *testing.T) {
	catches(t, checkAbsences, []plant{
		{"an engine opens files", "-- internal/engine/journal/a.go --\npackage journal\nimport \"os\"\n", "engine/journal does not know os: files are touched"},
		{"a test of it may", "-- internal/engine/journal/a_test.go --\npackage journal\nimport \"os\"\n", ""},
		{"the disk does", "-- internal/disk/a.go --\npackage disk\nimport \"os\"\n", ""},
		{"rules read the clock", "-- internal/stream/a.go --\npackage stream\nimport clock \"time\"\nvar now = clock.Now\n", "a.go:3: stream does not know time.Now"},
		{"rules know durations", "-- internal/stream/a.go --\npackage stream\nimport \"time\"\nconst d = time.Second\n", ""},
		{"rules lock", "-- internal/stream/a.go --\npackage stream\nimport \"sync\"\n", "whoever calls them does"},
		{"the hub speaks HTTP", "-- internal/hub/a.go --\npackage hub\nimport \"net/http\"\n", "above the hub only"},
		{"a room reads flags", "-- internal/server/a.go --\npackage server\nimport \"flag\"\n", "only cmd reads flags"},
		{"cmd reads flags", "-- cmd/weir/a.go --\npackage main\nimport \"flag\"\n", ""},
	})
}
