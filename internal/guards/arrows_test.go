package guards

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// forTests are the rooms (packages) that exist for tests. Only test files and other rooms of this
// list may import them.
var forTests = []string{"engine/enginetest", "engine/memory", "natstest", "disk/faulty", "contract", "service/servicetest", "faultnet", "faultnet/faultproxy"}

// testArrows are additional imports that only the tests of a room may use. The hub's tests run on
// every engine and repair the journal. The tests of the journal damage, check and repair it. The
// tests of access use the journal, to let clients hang up while it writes. The tests of the
// JetStream engine start a NATS server. The tests of the API and of the client check the version.
// The trials use the Go client over every protocol. The simulation consists of tests only.
var testArrows = map[string][]string{
	"hub":              {"engine/journal", "engine/journal/repair", "engine/jetstream", "engine/jetstream/embedded", "engine/jetstream/wire"},
	"engine/journal":   {"engine/journal/repair"},
	"engine/jetstream": {"engine/jetstream/embedded"}, "engine/jetstream/nodes": {"engine/jetstream/embedded"}, "engine/jetstream/wire": {"engine/jetstream/embedded"},
	"access": {"engine/journal"}, "api": {"build"}, "client": {"access", "build"}, "client/http3": {"client"}, "trials": {"client", "client/http3", "disk", "engine/journal", "weir"},
	"sim": {"client", "access", "api", "budget", "durable", "hub", "engine/journal", "engine/journal/repair", "weir", "engine", "engine/jetstream", "engine/jetstream/embedded", "engine/jetstream/nodes", "engine/jetstream/wire", "server/loop"},
}

// table maps each room to other rooms: to those that it imports (read from the source files), or to
// those that it may import (read from ARCHITECTURE.md). A room is a package. The root is called
// weir, everything below cmd/ is called cmd, and the other names leave out internal/.
type table map[string][]string

// parseArrows reads lines of the form "room, room → room, room" or "room → nothing". Any import
// without an arrow is forbidden. Arrows go down only, so parseArrows returns a complaint for each
// room that is part of a cycle.
func parseArrows(text string) (table, []string) {
	t := table{}
	for line := range strings.Lines(text) {
		from, to, ok := strings.Cut(strings.TrimSpace(line), "→")
		if !ok {
			continue
		}
		for _, room := range rooms(from) {
			t[room] = append(t[room], rooms(to)...)
		}
	}
	var complaints []string
	for room := range t {
		if slices.Contains(t.reach(room), room) {
			complaints = append(complaints, fmt.Sprintf("%s: the arrows lead from %s back to %s", architectureFile, room, room))
		}
	}
	return t, complaints
}

func rooms(list string) []string {
	var names []string
	for _, name := range strings.Split(list, ",") {
		if name = strings.TrimSpace(name); name != "nothing" {
			names = append(names, name)
		}
	}
	return names
}

// reach returns every room that the given room imports, directly or through other rooms.
func (t table) reach(room string) []string {
	var reached []string
	for todo := slices.Clone(t[room]); len(todo) > 0; todo = todo[1:] {
		if !slices.Contains(reached, todo[0]) {
			reached = append(reached, todo[0])
			todo = append(todo, t[todo[0]]...)
		}
	}
	return reached
}

// add adds the imports of a file to the table.
func (t table) add(s source) {
	for _, i := range s.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if to, ok := room(p); ok && !slices.Contains(t[roomOf(s.dir)], to) {
			t[roomOf(s.dir)] = append(t[roomOf(s.dir)], to)
		}
	}
}

// room turns an import path of this project into the name of a room. It returns false for any other
// path.
func room(importPath string) (string, bool) {
	rest, ok := strings.CutPrefix(importPath, "weir/")
	switch {
	case importPath == "weir":
		return "weir", true
	case !ok:
		return "", false
	case strings.HasPrefix(rest, "cmd/"):
		return "cmd", true
	}
	return strings.TrimPrefix(rest, "internal/"), true
}

// roomOf returns the name of the room in a directory.
func roomOf(dir string) string {
	if dir == "." {
		return "weir"
	}
	r, _ := room("weir/" + dir)
	return r
}

// checkArrows compares every import with the arrows of ARCHITECTURE.md. A test file may also import
// its own room, every room that its own room imports directly or through others, and the rooms for
// tests.
func checkArrows(tr *tree) []string {
	a := readArchitecture(tr)
	complaints := slices.Clone(a.faults)
	missing := map[string]bool{} // rooms without arrows, one complaint for each
	for _, s := range tr.goFiles {
		from := roomOf(s.dir)
		if _, ok := a.arrows[from]; !ok {
			if missing[from] {
				continue
			}
			missing[from] = true
			complaints = append(complaints, fmt.Sprintf("%s: room %s has no arrow in %s: add it to the list of rooms and to the arrows",
				s.path, from, architectureFile))
			continue
		}
		may := slices.Clone(a.arrows[from])
		if slices.Contains(forTests, from) {
			may = append(may, forTests...)
		}
		if s.test {
			may = slices.Concat(may, a.arrows.reach(from), forTests, []string{from}, testArrows[from])
		}
		for _, i := range s.ast.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			to, ours := room(p)
			if !ours || slices.Contains(may, to) {
				continue
			}
			complaints = append(complaints, fmt.Sprintf("%s: %s has no arrow %s → %s: %s", tr.at(i), architectureFile, from, to, advice(from, to)))
		}
	}
	return complaints
}

func advice(from, to string) string {
	switch {
	case to == "cmd":
		return "no room imports cmd; move the code into a room"
	case slices.Contains(forTests, to):
		return "that room is for tests; import it from a _test.go file"
	case from == "weir":
		return "the root package holds the shared types and imports no room; move the code into a room"
	}
	return "move the code to a room that may import both, or let the importing room get what it needs from its caller, as a value or an interface; " +
		"if the design itself changes, add the arrow to " + architectureFile
}

func TestArrows(t *testing.T) { passes(t, checkArrows) }

func TestArrowsPlanted(t *testing.T) {
	const arrows = "-- ARCHITECTURE.md --\n## Rooms\n```\n.   the shared types\n```\n```\n" +
		"cmd            → api, weir\napi            → hub\nhub            → stream, engine, weir\nengine/journal → engine, disk\n" +
		"disk/faulty    → disk\nstream, engine → weir\nserver, disk, bench, weir → nothing\n```\n"
	catches(t, checkArrows, []plant{
		{"an import with an arrow", arrows + "-- internal/hub/a.go --\npackage hub\nimport (\n\"os\"\n\"weir/internal/stream\"\n)\n", ""},
		{"an import from a room beside it", arrows + "-- internal/stream/a.go --\npackage stream\nimport \"weir/internal/engine\"\n", "no arrow stream → engine"},
		{"an import that skips a room", arrows + "-- internal/api/a.go --\npackage api\nimport \"weir/internal/engine\"\n", "a.go:2: ARCHITECTURE.md has no arrow api → engine"},
		{"an import from a room above it", arrows + "-- internal/engine/a.go --\npackage engine\nimport \"weir/internal/hub\"\n", "engine → hub"},
		{"the server imports the root", arrows + "-- internal/server/a.go --\npackage server\nimport \"weir\"\n", "server → weir"},
		{"the root imports a room", arrows + "-- a.go --\npackage weir\nimport \"weir/internal/stream\"\n", "imports no room"},
		{"cmd is imported", arrows + "-- bench/a.go --\npackage main\nimport \"weir/cmd/weir\"\n", "no room imports cmd"},
		{"a test room in the product", arrows + "-- internal/engine/journal/a.go --\npackage journal\nimport \"weir/internal/disk/faulty\"\n", "from a _test.go file"},
		{"a test room in a test", arrows + "-- internal/engine/journal/a_test.go --\npackage journal\nimport \"weir/internal/disk/faulty\"\n", ""},
		{"a test reaches further down", arrows + "-- internal/api/a_test.go --\npackage api_test\nimport (\n\"weir/internal/api\"\n\"weir/internal/stream\"\n)\n", ""},
		{"a test reaches up", arrows + "-- internal/stream/a_test.go --\npackage stream\nimport \"weir/internal/hub\"\n", "stream → hub"},
		{"a room without arrows", arrows + "-- internal/util/a.go --\npackage util\n", "room util has no arrow"},
		{"no document", "", "ARCHITECTURE.md is missing"},
	})
}

func TestArrowsGoDownOnly(t *testing.T) {
	_, complaints := parseArrows("a → b\nb → c\nc → b\n")
	slices.Sort(complaints)
	if want := []string{
		"ARCHITECTURE.md: the arrows lead from b back to b", "ARCHITECTURE.md: the arrows lead from c back to c",
	}; !slices.Equal(complaints, want) {
		t.Errorf("got %q, want %q", complaints, want)
	}
}
