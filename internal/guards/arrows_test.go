package guards

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows says which room may import which; whatever is not said is forbidden. A room is a package: weir is the root,
// cmd is everything below cmd/, and the others are named without internal/. Rooms that do not exist yet stand here
// already. ARCHITECTURE.md draws the same arrows for people.
const arrows = `
	cmd                             → server, certificate, api, manual, admin, dashboard, metrics, hub, access, backup, budget, engine/journal, engine/jetstream, engine/jetstream/embedded, engine, disk, client, clients/js, weir
	metrics                         → api, hub, engine/journal, engine, meter
	api                             → hub, access, budget, meter, weir
	dashboard                       → api, hub, access, engine, meter, weir
	admin                           → hub, access, weir
	hub                             → stream, engine, budget, meter, weir
	access                          → engine, meter, weir
	engine/journal                  → engine, disk, meter, weir
	engine/jetstream, engine/memory → engine, weir
	stream, engine, client          → weir
	manual                          → docs
	server, certificate, disk, backup, budget, meter, docs, client/http3, clients/js, weir, guards, engine/jetstream/embedded, natstest → nothing
	engine/enginetest               → engine, weir
	disk/faulty                     → disk
	contract, trials                → nothing
	bench                           → client, engine/journal, engine/jetstream, engine, disk, weir
`

// forTests are the rooms that exist for tests. They may import each other; otherwise only test files import them.
var forTests = []string{"engine/enginetest", "engine/memory", "natstest", "disk/faulty", "contract"}

// testArrows are what tests of a room need beyond that: the hub's run on the engine that servers run on, too, and repair it,
// and on the one that hubs share; those of that engine run on a server of their own, and the client's run against a service.
var testArrows = map[string][]string{
	"hub": {"engine/journal", "disk", "engine/jetstream", "engine/jetstream/embedded"}, "engine/jetstream": {"engine/jetstream/embedded"},
	"client": {"api", "hub", "access"}, "client/http3": {"client", "weir"},
}

type table map[string][]string

// parseArrows reads the table. Cycles in it are a complaint: arrows go down only.
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
			complaints = append(complaints, fmt.Sprintf("the table of arrows leads from %s back to %s", room, room))
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

// reach is every room that arrows lead to from a room, over any number of steps.
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

// room turns an import path of ours into a room; false for the packages of others.
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

func roomOf(s source) string {
	if s.dir == "." {
		return "weir"
	}
	r, _ := room("weir/" + s.dir)
	return r
}

// checkArrows holds every import against the table. A test file may import more: its own room, whatever its room
// reaches, and the rooms that exist for tests.
func checkArrows(tr *tree) []string {
	allowed, complaints := parseArrows(arrows)
	for _, s := range tr.goes {
		from := roomOf(s)
		if _, ok := allowed[from]; !ok {
			complaints = append(complaints, fmt.Sprintf("%s: room %s has no line in the table of arrows in internal/guards: "+
				"add one there and to ARCHITECTURE.md", s.path, from))
			continue
		}
		may := slices.Clone(allowed[from])
		if slices.Contains(forTests, from) {
			may = append(may, forTests...)
		}
		if s.test {
			may = slices.Concat(may, allowed.reach(from), forTests, []string{from}, testArrows[from])
		}
		for _, i := range s.ast.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			to, ours := room(p)
			if !ours || slices.Contains(may, to) {
				continue
			}
			complaints = append(complaints, fmt.Sprintf("%s: %s → %s is no arrow of ours: %s", tr.at(i), from, to, advice(from, to)))
		}
	}
	return complaints
}

func advice(from, to string) string {
	switch {
	case to == "cmd":
		return "nobody imports cmd; move what is needed into a room"
	case slices.Contains(forTests, to):
		return "that room is for tests; import it from a _test.go file"
	case from == "weir":
		return "the root holds nouns and imports nothing of ours; move the code into a room"
	}
	return "move the code to where both are known, or hand it in from above as a value or an interface; " +
		"if the design itself changes, change the table in internal/guards and ARCHITECTURE.md together"
}

func TestArrows(t *testing.T) { holds(t, checkArrows) }

// What people read is what is held.
func TestArrowsAsDrawn(t *testing.T) {
	drawn := string(project(t).text["ARCHITECTURE.md"])
	for line := range strings.Lines(arrows) {
		if line = strings.TrimSpace(line); !strings.Contains(drawn, "\n"+line+"\n") && line != "" {
			t.Errorf("ARCHITECTURE.md does not draw: %s", line)
		}
	}
}

func TestArrowsBite(t *testing.T) {
	bites(t, checkArrows, []bite{
		{"as designed", "-- internal/hub/a.go --\npackage hub\nimport (\n\"os\"\n\"weir/internal/stream\"\n)\n", ""},
		{"sideways", "-- internal/stream/a.go --\npackage stream\nimport \"weir/internal/engine\"\n", "stream → engine is no arrow"},
		{"around a room", "-- internal/api/a.go --\npackage api\nimport \"weir/internal/engine\"\n", "a.go:2: api → engine"},
		{"upwards", "-- internal/engine/a.go --\npackage engine\nimport \"weir/internal/hub\"\n", "engine → hub"},
		{"server knows us", "-- internal/server/a.go --\npackage server\nimport \"weir\"\n", "server → weir"},
		{"root knows a room", "-- a.go --\npackage weir\nimport \"weir/internal/stream\"\n", "imports nothing of ours"},
		{"cmd is imported", "-- bench/a.go --\npackage main\nimport \"weir/cmd/weir\"\n", "nobody imports cmd"},
		{"test room in the product", "-- internal/engine/journal/a.go --\npackage journal\nimport \"weir/internal/disk/faulty\"\n", "from a _test.go file"},
		{"test room in a test", "-- internal/engine/journal/a_test.go --\npackage journal\nimport \"weir/internal/disk/faulty\"\n", ""},
		{"test reaches further down", "-- internal/api/a_test.go --\npackage api_test\nimport (\n\"weir/internal/api\"\n\"weir/internal/stream\"\n)\n", ""},
		{"test reaches up", "-- internal/stream/a_test.go --\npackage stream\nimport \"weir/internal/hub\"\n", "stream → hub"},
		{"new room", "-- internal/util/a.go --\npackage util\n", "room util has no line"},
	})
}

func TestArrowsGoDownOnly(t *testing.T) {
	_, complaints := parseArrows("a → b\nb → c\nc → b\n")
	slices.Sort(complaints)
	if want := []string{
		"the table of arrows leads from b back to b", "the table of arrows leads from c back to c",
	}; !slices.Equal(complaints, want) {
		t.Errorf("got %q, want %q", complaints, want)
	}
}
