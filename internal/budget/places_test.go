package budget

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

var home = netip.MustParseAddr("192.0.2.1")

// fill takes places until Take fails. It returns the number of places that it took, and the error.
func fill(p *Places, of Holder, at netip.Addr) (n int, err error) {
	for {
		if err = p.Take(of, at); err != nil {
			return n, err
		}
		n++
	}
}

// One key may take three quarters of the places. The rest is for other keys (D34).
func TestPlacesAreShared(t *testing.T) {
	p := NewPlaces(PlaceOptions{Total: 1000})
	n, err := fill(p, Holder{"p", "greedy"}, home)
	if n != 750 || !errors.Is(err, ErrShare) {
		t.Errorf("one key got %d places of 1000, then %v; want 750, then ErrShare", n, err)
	}
	for _, h := range []Holder{{"p", "second"}, {"q", "third"}, {"r", "fourth"}, {"s", "fifth"}} {
		if n, err = fill(p, h, home); n == 0 || !errors.Is(err, ErrShare) {
			t.Errorf("%v got %d places, then %v; want at least 1, then ErrShare", h, n, err)
		}
	}
	for range 750 {
		p.Give(Holder{"p", "greedy"}, home)
	}
	if n, err := fill(p, Holder{"p", "greedy"}, home); n == 0 || !errors.Is(err, ErrShare) {
		t.Errorf("after the key returned all its places, it got %d places, then %v; want at least 1, then ErrShare", n, err)
	}
}

// The last eighth of the places stays free for other projects, however many keys a project has.
func TestPlacesOfManyKeys(t *testing.T) {
	p := NewPlaces(PlaceOptions{Total: 1000})
	n := 0
	for p.Take(Holder{"p", fmt.Sprint(n)}, home) == nil {
		n++
	}
	if n != 875 {
		t.Errorf("the keys of one project got %d places of 1000, want 875", n)
	}
	if n, _ := fill(p, Holder{"q", "k"}, home); n < 60 {
		t.Errorf("another project got %d places, want at least 60", n)
	}
}

// If all places are taken, the error is ErrFull and not ErrShare.
func TestPlacesFull(t *testing.T) {
	p := NewPlaces(PlaceOptions{Total: 8})
	for i := range 20 {
		fill(p, Holder{fmt.Sprint(i), "k"}, home)
	}
	if err := p.Take(Holder{"new", "k"}, home); !errors.Is(err, ErrFull) || p.Taken() != 8 {
		t.Errorf("with %d of 8 places taken: %v, want ErrFull", p.Taken(), err)
	}
}

// The demo gets at most a quarter of all places, and one client address at most a quarter of these.
func TestPlacesOfDemo(t *testing.T) {
	p := NewPlaces(PlaceOptions{Total: 1600, Demo: "demo"})
	all := 0
	for i := range 10 {
		n, err := fill(p, Holder{"demo", fmt.Sprint(i)}, home)
		if all += n; n > 100 || !errors.Is(err, ErrShare) {
			t.Errorf("an address got %d places, then %v; want at most 100, then ErrShare", n, err)
		}
	}
	if all != 400 {
		t.Errorf("the demo got %d places of 1600, want 400", all)
	}
}

func TestPlaceCaps(t *testing.T) {
	p := NewPlaces(PlaceOptions{Total: 1000, Key: 5, Project: 8, Address: 10})
	other := netip.MustParseAddr("192.0.2.2")
	for _, c := range []struct {
		of   Holder
		at   netip.Addr
		want int
	}{{Holder{"p", "a"}, home, 5}, {Holder{"p", "b"}, home, 3}, {Holder{"q", "a"}, home, 2}, {Holder{"q", "a"}, other, 3}} {
		if n, err := fill(p, c.of, c.at); n != c.want || !errors.Is(err, ErrShare) {
			t.Errorf("%v at %v got %d places, then %v; want %d", c.of, c.at, n, err, c.want)
		}
	}
	for range 5 {
		p.Give(Holder{"p", "a"}, home)
	}
	if n, _ := fill(p, Holder{"p", "c"}, home); n != 5 {
		t.Errorf("5 places were returned, but another key could take %d, want 5", n)
	}
}
