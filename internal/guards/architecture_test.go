package guards

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const architectureFile = "ARCHITECTURE.md"

// architecture is the part of ARCHITECTURE.md that the guards check: its rooms, which are packages,
// and its arrows, which are the imports that it allows. The guards have no list of their own, so
// they check exactly the rules that people read.
type architecture struct {
	rooms  []string // directories, in the order of the document; "." is the root
	arrows table
	faults []string // why the document could not be read
}

// readArchitecture reads the two code blocks below the heading "Rooms". The first lists the rooms,
// one per line, with a child indented two spaces below its parent. The second has the arrows. If the
// DESIGN.md of a room has the same heading, its two blocks have the rooms inside that room.
func readArchitecture(tr *tree) architecture {
	text, ok := tr.text[architectureFile]
	if !ok {
		return architecture{arrows: table{}, faults: []string{architectureFile + " is missing"}}
	}
	blocks := codeBlocks(string(text), "## Rooms")
	if len(blocks) < 2 {
		return architecture{arrows: table{}, faults: []string{fmt.Sprintf(
			"%s has %d code blocks below the heading Rooms, want two: rooms and arrows", architectureFile, len(blocks))}}
	}
	a := architecture{rooms: parseRooms(blocks[0])}
	arrows := blocks[1]
	for _, dir := range slices.Clone(a.rooms) {
		inner := codeBlocks(string(tr.text[path.Join(dir, "DESIGN.md")]), "## Rooms")
		if len(inner) < 2 {
			continue
		}
		for _, room := range parseRooms(inner[0]) {
			a.rooms = append(a.rooms, path.Join(dir, room))
		}
		arrows += inner[1]
	}
	a.arrows, a.faults = parseArrows(arrows)
	return a
}

// codeBlocks returns the contents of the fenced code blocks between a heading and the next heading
// of its level.
func codeBlocks(text, heading string) []string {
	var blocks []string
	below, inside := false, false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			if inside = !inside; inside && below {
				blocks = append(blocks, "")
			}
		case inside && below:
			blocks[len(blocks)-1] += line
		case !inside && strings.HasPrefix(line, "## "):
			below = strings.TrimSpace(line) == heading
		}
	}
	return blocks
}

// parseRooms turns the list of rooms into directories.
func parseRooms(block string) []string {
	var rooms, parents []string
	for line := range strings.Lines(block) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		parents = append(parents[:min(depth, len(parents))], fields[0])
		rooms = append(rooms, path.Join(parents...))
	}
	return rooms
}

// checkRooms compares the list of rooms and the arrows with the directories and imports of the
// tree.
func checkRooms(tr *tree) []string {
	a := readArchitecture(tr)
	complaints := slices.Clone(a.faults)
	if len(a.rooms) == 0 {
		return complaints
	}
	complaint := func(format string, args ...any) {
		complaints = append(complaints, architectureFile+": "+fmt.Sprintf(format, args...))
	}
	dirs, code := directories(tr)
	for _, dir := range a.rooms {
		if !dirs[dir] {
			complaint("room %s is listed and does not exist: remove the line", dir)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		top := !strings.Contains(dir, "/") && !strings.HasPrefix(dir, ".")
		if (code[dir] || top) && !listed(a.rooms, dir, code[dir]) {
			complaint("room %s exists and is not listed: add a line that says what it is for", dir)
		}
	}
	known := map[string]bool{}
	for _, dir := range a.rooms {
		known[roomOf(dir)] = true
		if _, ok := a.arrows[roomOf(dir)]; !ok && code[dir] {
			complaint("room %s has no arrow: say which rooms it imports, or nothing", roomOf(dir))
		}
	}
	used := imports(tr)
	for _, from := range slices.Sorted(maps.Keys(a.arrows)) {
		if !known[from] {
			complaint("arrows start at %s, which is no listed room", from)
			continue
		}
		for _, to := range a.arrows[from] {
			switch {
			case !known[to]:
				complaint("the arrow %s → %s leads to no listed room", from, to)
			case !slices.Contains(used[from], to):
				complaint("no file uses the arrow %s → %s: remove it", from, to)
			}
		}
	}
	return complaints
}

// directories returns all directories of the tree, and those that hold a Go package.
func directories(tr *tree) (all, code map[string]bool) {
	all, code = map[string]bool{}, map[string]bool{}
	for name := range tr.text {
		for dir := path.Dir(name); ; dir = path.Dir(dir) {
			all[dir] = true
			if dir == "." {
				break
			}
		}
	}
	for _, s := range tr.goFiles {
		code[s.dir] = true
	}
	return all, code
}

// listed reports whether a directory is a listed room. A directory without code, such as internal,
// counts as listed if a room below it is listed.
func listed(rooms []string, dir string, code bool) bool {
	return slices.Contains(rooms, dir) ||
		!code && slices.ContainsFunc(rooms, func(r string) bool { return strings.HasPrefix(r, dir+"/") })
}

// imports returns the rooms that the production code of each room imports.
func imports(tr *tree) table {
	t := table{}
	for _, s := range tr.goFiles {
		if !s.test {
			t.add(s)
		}
	}
	return t
}

func TestRooms(t *testing.T) { passes(t, checkRooms) }

// Every name in forTests is a room, and a test uses every arrow in testArrows.
func TestRoomsForTests(t *testing.T) {
	tr := project(t)
	a := readArchitecture(tr)
	for _, room := range forTests {
		if _, ok := a.arrows[room]; !ok {
			t.Errorf("forTests names %s, which is not a room", room)
		}
	}
	used := table{}
	for _, s := range tr.goFiles {
		if s.test {
			used.add(s)
		}
	}
	for from, rooms := range testArrows {
		for _, to := range rooms {
			if !slices.Contains(used[from], to) {
				t.Errorf("no test uses the arrow %s → %s of testArrows: remove it", from, to)
			}
		}
	}
}

// drawing is an ARCHITECTURE.md that is correct for the files in the constant drawn.
const drawing = "-- ARCHITECTURE.md --\n# Architecture\n\n```\nnot the rooms\n```\n\n## Rooms\n\n" +
	"```\n.                 the types\ncmd/weir          the command\ninternal/engine   the interface\n  memory          an engine\ndocs              the manual\n```\n\n" +
	"Arrows go down only:\n\n" +
	"```\ncmd             → engine/memory, engine, weir\nengine/memory   → engine\nengine, weir    → nothing\n```\n\n" +
	"## Other\n\n```\nweir → cmd\n```\n"

const drawn = "-- weir.go --\npackage weir\n" +
	"-- cmd/weir/main.go --\npackage main\nimport (\n\"weir\"\n\"weir/internal/engine\"\n\"weir/internal/engine/memory\"\n)\n" +
	"-- internal/engine/engine.go --\npackage engine\n" +
	"-- internal/engine/memory/memory.go --\npackage memory\nimport \"weir/internal/engine\"\n" +
	"-- docs/a.md --\n# Manual\n-- .ci/run --\n#!/bin/sh\n"

func TestRoomsPlanted(t *testing.T) {
	replaced := func(old, by string) string { return strings.Replace(drawing, old, by, 1) + drawn }
	catches(t, checkRooms, []plant{
		{"correct", drawing + drawn, ""},
		{"a room inside a room", drawing + drawn + "-- internal/engine/memory/DESIGN.md --\n## Rooms\n```\nindex  an index\n```\n```\nengine/memory/index → nothing\n```\n-- internal/engine/memory/index/a.go --\npackage index\n", ""},
		{"a room inside a room that does not exist", drawing + drawn + "-- internal/engine/memory/DESIGN.md --\n## Rooms\n```\nindex  an index\n```\n```\nengine/memory/index → nothing\n```\n", "room internal/engine/memory/index is listed and does not exist"},
		{"no document", drawn, "ARCHITECTURE.md is missing"},
		{"no blocks", "-- ARCHITECTURE.md --\n## Rooms\n" + drawn, "has 0 code blocks below the heading Rooms"},
		{"a room that is not listed", drawing + drawn + "-- internal/util/a.go --\npackage util\n", "room internal/util exists and is not listed"},
		{"a directory that is not listed", drawing + drawn + "-- deploy/weir.service --\n[Unit]\n", "room deploy exists and is not listed"},
		{"a listed room that does not exist", replaced("docs   ", "deploy            packages\ndocs   "), "room deploy is listed and does not exist"},
		{"an unused arrow", replaced("engine/memory   → engine", "engine/memory   → engine, weir"), "no file uses the arrow engine/memory → weir"},
		{"an arrow that only a test uses", replaced("engine/memory   → engine", "engine/memory   → engine, weir") +
			"-- internal/engine/memory/a_test.go --\npackage memory\nimport \"weir\"\n", "no file uses the arrow engine/memory → weir"},
		{"an arrow to an unknown room", replaced("engine/memory   → engine", "engine/memory   → engine, cellar"), "leads to no listed room"},
		{"an arrow from an unknown room", replaced("engine, weir    → ", "cellar, engine, weir → "), "arrows start at cellar"},
		{"a room without arrows", replaced("engine, weir    → nothing", "engine          → nothing"), "room weir has no arrow"},
		{"arrows in a circle", strings.Replace(replaced("engine, weir    → nothing", "engine → weir\nweir → weir"), "package engine\n", "package engine\nimport \"weir\"\n", 1) +
			"-- a.go --\npackage weir\nimport \"weir\"\n", "lead from weir back to weir"},
	})
}
