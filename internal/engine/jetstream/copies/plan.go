package copies

import (
	"cmp"
	"slices"
)

// step is one step towards another distribution of the copies. It moves a copy of a stream from one
// server to another. If the field from is empty, the step changes the leader of the stream instead:
// the server that the field to names takes over.
type step struct {
	stream   int // index in Standing.Streams
	from, to string
}

// servers returns the servers that have a copy of the stream.
func (s *StreamStanding) servers() (all []string) {
	for _, r := range s.Replicas {
		all = append(all, r.Server)
	}
	return all
}

// plan returns the steps that take all copies off the server that the parameter leaving names. If
// leaving is empty, it returns the steps after which each of the given servers has the same number
// of copies and leads the same number of streams, give or take one. A stream stays where it is if
// it can.
func plan(streams []StreamStanding, servers []string, leaving string) (steps []step) {
	p := planner{copies: map[string]int{}, leads: map[string]int{}, servers: slices.Sorted(slices.Values(servers))}
	for _, s := range streams {
		on := s.servers()
		p.on, p.leader = append(p.on, on), append(p.leader, s.Leader)
		p.leads[s.Leader]++
		for _, server := range on {
			p.copies[server]++
		}
	}
	if leaving != "" {
		p.servers = slices.DeleteFunc(p.servers, func(s string) bool { return s == leaving })
		for i, on := range p.on {
			if slices.Contains(on, leaving) {
				if to := p.emptiest(i); to != "" {
					p.move(i, leaving, to)
				}
			}
		}
		return p.steps
	}
	for p.spread() {
	}
	for p.share() {
	}
	return p.steps
}

// planner is the distribution of the copies after the steps so far.
type planner struct {
	servers       []string   // servers that may get copies, in order
	on            [][]string // the servers of each stream
	leader        []string   // the leader of each stream
	copies, leads map[string]int
	steps         []step
}

// emptiest returns the server with the fewest copies among those without a copy of the stream.
func (p *planner) emptiest(stream int) string {
	free := slices.DeleteFunc(slices.Clone(p.servers), func(s string) bool { return slices.Contains(p.on[stream], s) })
	if len(free) == 0 {
		return ""
	}
	return slices.MinFunc(free, func(a, b string) int { return cmp.Compare(p.copies[a], p.copies[b]) })
}

func (p *planner) move(stream int, from, to string) {
	p.steps = append(p.steps, step{stream, from, to})
	p.on[stream][slices.Index(p.on[stream], from)] = to
	p.copies[from]--
	p.copies[to]++
	if p.leader[stream] == from {
		// One of the other servers will lead the stream. It is not known which one.
		p.leads[from]--
		p.leader[stream] = ""
	}
}

// spread moves one copy from the server with the most copies to the server with the fewest, if that
// makes the numbers more equal. It prefers a stream that the former server does not lead, because a
// change of the leader delays writes for a moment.
func (p *planner) spread() bool {
	by := func(a, b string) int { return cmp.Compare(p.copies[a], p.copies[b]) }
	from, to := slices.MaxFunc(p.servers, by), slices.MinFunc(p.servers, by)
	if p.copies[from]-p.copies[to] < 2 {
		return false
	}
	best := -1
	for i, on := range p.on {
		if slices.Contains(on, from) && !slices.Contains(on, to) && (best < 0 || p.leader[best] == from && p.leader[i] != from) {
			best = i
		}
	}
	p.move(best, from, to) // from has two copies more than to, so there is such a stream
	return true
}

// share changes leaders, if that makes the numbers of led streams more equal. Only a server with a
// copy of a stream can become its leader. So it may be impossible to hand a stream directly from a
// server that leads too many to one that leads too few. Then servers in between take over one
// stream each and hand on another.
func (p *planner) share() bool {
	for _, from := range p.servers {
		via := map[string]int{from: -1} // for each server that can be reached, the stream that it takes over
		for reached := []string{from}; len(reached) > 0; reached = reached[1:] {
			for i, leader := range p.leader {
				for _, to := range p.on[i] {
					if _, ok := via[to]; ok || leader != reached[0] || !slices.Contains(p.servers, to) {
						continue
					}
					via[to] = i
					reached = append(reached, to)
					if p.leads[from]-p.leads[to] >= 2 {
						p.hand(via, to)
						return true
					}
				}
			}
		}
	}
	return false
}

// hand makes a server the leader of the stream that it takes over according to via. The former
// leader of this stream then takes over another stream in the same way, and so on, back to the
// server with which the search in share() began: that one takes over nothing.
func (p *planner) hand(via map[string]int, to string) {
	for i := via[to]; i >= 0; i = via[to] {
		p.steps = append(p.steps, step{stream: i, to: to})
		before := p.leader[i]
		p.leads[before]--
		p.leads[to]++
		p.leader[i], to = to, before
	}
}
