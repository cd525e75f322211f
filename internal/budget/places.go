package budget

import (
	"errors"
	"net/netip"
	"sync"
)

// The errors of Take.
var (
	// ErrFull means that no place is free.
	ErrFull = errors.New("all places are taken")
	// ErrShare means that the remaining places are reserved for holders that have fewer. A holder
	// is a key, or the client address of a caller without a key. ErrShare can also mean that the
	// holder, its project, its address or the demo has reached a cap.
	ErrShare = errors.New("the remaining places are reserved for holders that have fewer")
)

// PlaceOptions sets the number of places and their caps. A cap is the largest number of places that
// one key, project or address may have; 0 means no cap.
type PlaceOptions struct {
	Total   int
	Key     int // cap of one key
	Project int // cap of one project
	Address int // cap of one client address

	// Demo is the name of the demo project, in which each client address counts as a holder. The
	// demo project gets at most a quarter of all places, and one address at most a quarter of
	// these.
	Demo string
}

// Places counts the places for subscriptions. Each open subscription takes one place. The methods
// are safe for concurrent use.
type Places struct {
	o  PlaceOptions
	mu sync.Mutex
	shares
	addresses map[netip.Addr]int // places by client address; counted only if there is a cap
}

// NewPlaces returns places that are all free.
func NewPlaces(o PlaceOptions) *Places {
	return &Places{o: o, shares: newShares(int64(o.Total)), addresses: make(map[netip.Addr]int)}
}

// Take takes a place for a holder at an address. It fails with ErrFull or ErrShare. After a
// successful Take, the caller must later call Give with the same arguments.
func (p *Places) Take(of Holder, at netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.join(of)
	err := p.refusal(k, at)
	if err != nil {
		p.leave(k)
		return err
	}
	p.free--
	p.add(k, 1)
	if p.o.Address > 0 {
		p.addresses[at]++
	}
	return nil
}

func (p *Places) refusal(k *key, at netip.Addr) error {
	demo := p.total / 4
	switch {
	case p.o.Demo != "" && k.project.name == p.o.Demo && (k.project.held >= demo || k.held >= max(1, demo/4)):
		return ErrShare
	case reached(p.o.Key, k.held) || reached(p.o.Project, k.project.held) || reached(p.o.Address, int64(p.addresses[at])):
		return ErrShare
	case p.free == 0:
		return ErrFull
	case !p.allows(k, 1):
		return ErrShare
	}
	return nil
}

func reached(most int, held int64) bool { return most > 0 && held >= int64(most) }

// Give returns a place.
func (p *Places) Give(of Holder, at netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.join(of)
	p.free++
	p.add(k, -1)
	p.leave(k) // for the join in Take
	p.leave(k) // for the join above
	if p.o.Address > 0 {
		if p.addresses[at]--; p.addresses[at] == 0 {
			delete(p.addresses, at)
		}
	}
}

// Taken returns the number of places that are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.held)
}
