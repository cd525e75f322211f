package api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Members of the bodies that create and change a stream.
var (
	changeMembers = []string{"name", "retention_seconds", "max_bytes"}
	createMembers = append([]string{"id", "mode", "ttl_seconds"}, changeMembers...)
)

// Limits of a hint. They bound the work for a body with many members, and the length of the text.
const (
	maxHints      = 3
	hintedMembers = 16 // maximum number of unknown members that are compared with the known ones
	hintedName    = 40 // maximum length of a member's name in bytes; a longer name gets no hint
)

// hint notes members of a body that are probably mistakes, such as retention instead of
// retention_seconds. The API ignores unknown members (D10), and no response may repeat what a client
// sent, so the note goes into the request log only.
func (c *call) hint(body []byte, known []string) {
	var given, unknown []string
	_ = eachMember(body, func(member string, _ jsontext.Value) error { // the caller reports an invalid body
		switch {
		case slices.Contains(known, member):
			given = append(given, member)
		case len(member) <= hintedName && len(unknown) < hintedMembers:
			unknown = append(unknown, member)
		}
		return nil
	})
	var hints []string
	for _, member := range unknown {
		for _, k := range known {
			if len(hints) < maxHints && !slices.Contains(given, k) && resembles(member, k) {
				hints = append(hints, "unknown member "+strconv.Quote(member)+": did you mean "+k+"?")
				break
			}
		}
	}
	c.hints = strings.Join(hints, " ")
}

// resembles reports whether the first name is probably a mistake for the second one, which is the
// name of a member. It may be the second name in another spelling (retentionSeconds), start like it
// (retention, ttl_ms), or differ from it by one or two typing errors.
func resembles(given, known string) bool {
	plain := func(name string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(name))
	}
	a, b := plain(given), plain(known)
	if rest := strings.TrimPrefix(a, "stream"); rest != "" { // such as stream_name
		a = rest
	}
	first, _, _ := strings.Cut(known, "_")
	switch {
	case len(b) < 3: // every short name is similar to id
		return a == b
	case strings.HasPrefix(a, first), len(a) > 2 && strings.HasPrefix(b, a):
		return true
	}
	return within(a, b, min(2, len(b)/4))
}

// within reports whether a becomes b with at most this many edits. An edit inserts, deletes or
// replaces a byte, or swaps two neighbours.
func within(a, b string, edits int) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case a == "" || b == "":
		return len(a)+len(b) <= edits
	case edits == 0:
		return false
	case len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] && within(a[2:], b[2:], edits-1):
		return true
	}
	return within(a[1:], b, edits-1) || within(a, b[1:], edits-1) || within(a[1:], b[1:], edits-1)
}
