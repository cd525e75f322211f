package sim

import (
	"slices"
	"strconv"
	"strings"
)

// fork is a copy of a producer's stream. Clients see it only when it is complete. Then it never
// changes.
type fork struct {
	path  string
	least []string // the messages that it must have
	tried bool     // the outcome of an attempt to create it is unknown
	made  bool     // it exists
	got   []string // its messages; nil if it was not read yet
}

// forks creates the fork of the producer's stream, or reads it.
func (p *producer) forks(c *client, g *server) {
	if p.fork == nil {
		p.fork = &fork{path: p.path + "-fork"}
		for _, m := range p.sent {
			if m.certain {
				p.fork.least = append(p.fork.least, m.text)
			}
		}
	}
	f := p.fork
	if f.made || f.tried && c.rng.IntN(2) == 0 {
		f.read(c, g)
		return
	}
	x := c.send(g, &exchange{judged: true, busy: f.tried}, "PUT", f.path, nil, "Content-Type", "application/json", "Stream-Forked-From", p.path)
	switch {
	case x == nil || x.status == 503:
		f.tried = true
	case x.status == 409 && f.tried: // another node may still be creating it
	case x.status != 201 && x.status != 200:
		c.w.violation("%s: fork: %s", p.name, x)
	default:
		f.made = true
	}
}

// read reads the fork. It returns false if there is no response that counts.
func (f *fork) read(c *client, g *server) bool {
	x := c.send(g, &exchange{judged: true}, "GET", f.path+"?offset=-1", nil)
	if x == nil || x.status == 503 {
		return false
	}
	if x.status == 404 && !f.made {
		return true
	}
	f.made = true
	var got []string
	err := unmarshal(x.got.Bytes(), &got)
	lacks := func(text string) bool { return !slices.Contains(got, text) }
	switch {
	case x.status != 200 || err != nil:
		c.w.violation("fork %s: read: %s", f.path, x)
	case f.got != nil && !slices.Equal(got, f.got):
		c.w.violation("fork %s has %d messages, but had %d", f.path, len(got), len(f.got))
	case slices.ContainsFunc(f.least, lacks) || !slices.IsSortedFunc(got, func(a, b string) int { return numberOf(a) - numberOf(b) }):
		c.w.violation("fork %s has %d messages, of which the first %d must be those that its source had", f.path, len(got), len(f.least))
	}
	f.got = got
	return true
}

// numberOf returns the number of a message, which is higher for later messages.
func numberOf(text string) int {
	n, _ := strconv.Atoi(strings.Split(text, "-")[1])
	return n
}
