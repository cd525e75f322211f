package guards

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// absence is a package or function that some rooms must not use. A room is a package of this
// project. Tests may use everything.
type absence struct {
	rooms  []string // a name with /... includes the rooms below it
	except bool     // the rule applies to all rooms except these
	pkg    string   // import path
	name   string   // name of a function; empty for the whole package
	why    string
}

var absences = []absence{
	{[]string{"engine/..."}, false, "os", "", "an engine reaches files only through internal/disk, so that tests can make every call fail"},
	{[]string{"weir", "stream"}, false, "os", "", "this room does no I/O"},
	{[]string{"weir", "stream", "engine/...", "hub", "disk/..."}, false, "net/http", "", "only rooms above the hub know HTTP"},
	{[]string{"weir", "stream"}, false, "time", "Now", "the caller passes in the time"},
	{[]string{"stream"}, false, "sync", "", "the functions of this room take no lock; their caller does"},
	{[]string{"stream", "weir"}, false, "context", "", "no function in this room waits"},
	{[]string{"stream", "weir"}, false, "log/slog", "", "the functions of this room return their results and never log"},
	{[]string{"cmd", "bench"}, true, "flag", "", "only commands (cmd and bench) read flags"},
	{[]string{""}, true, "log", "", "the project logs with log/slog only"},
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
				complaints = append(complaints, fmt.Sprintf("%s: %s must not use %s: %s", tr.at(n), roomOf(s.dir), what, a.why))
			}
		}
	}
	return complaints
}

// find returns the first node of a file that breaks the rule, or nil.
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

// calls returns every use of pkg.name in a file, even if the file imports the package under another
// name.
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
		{"an engine opens files", "-- internal/engine/journal/a.go --\npackage journal\nimport \"os\"\n", "engine/journal must not use os: an engine reaches files"},
		{"the test of an engine opens files", "-- internal/engine/journal/a_test.go --\npackage journal\nimport \"os\"\n", ""},
		{"the disk opens files", "-- internal/disk/a.go --\npackage disk\nimport \"os\"\n", ""},
		{"the room stream reads the clock", "-- internal/stream/a.go --\npackage stream\nimport clock \"time\"\nvar now = clock.Now\n", "a.go:3: stream must not use time.Now"},
		{"the room stream uses durations", "-- internal/stream/a.go --\npackage stream\nimport \"time\"\nconst d = time.Second\n", ""},
		{"the room stream takes a lock", "-- internal/stream/a.go --\npackage stream\nimport \"sync\"\n", "their caller does"},
		{"the hub speaks HTTP", "-- internal/hub/a.go --\npackage hub\nimport \"net/http\"\n", "above the hub know HTTP"},
		{"a room reads flags", "-- internal/server/a.go --\npackage server\nimport \"flag\"\n", "only commands (cmd and bench) read flags"},
		{"cmd reads flags", "-- cmd/weir/a.go --\npackage main\nimport \"flag\"\n", ""},
	})
}
