// Package faultnet simulates a bad network for tests. A [Proxy] stands between a client and a
// server. It slows down, holds back, resets or repeats traffic, or answers requests itself.
// [Schedule] returns a random sequence of faults; the same seed returns the same faults.
//
// The command faultproxy runs a proxy as a process of its own, for the tests of clients that are
// not written in Go.
package faultnet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Speeds of a slow link, in bytes per second.
const (
	Rate40kB = 40_000
	Rate1M   = 1_000_000 / 8
	Rate10M  = 10_000_000 / 8
)

// Conditions say what a proxy does with the traffic. The zero value forwards everything.
type Conditions struct {
	// Rate is the speed of the link in each direction, in bytes per second; 0 means no limit.
	Rate int `json:"rate,omitempty"`

	// Delay is how long every piece of data waits before the proxy forwards it.
	Delay time.Duration `json:"delay_ns,omitempty"`

	// BlackHole holds back all data. TCP connections stay open, and their data continues when
	// BlackHole is cleared. UDP packets are lost.
	BlackHole bool `json:"black_hole,omitempty"`

	// Refuse closes every new TCP connection at once.
	Refuse bool `json:"refuse,omitempty"`

	// Answer, if not 0, is the status with which the proxy itself answers every request: for
	// example 521, 404, or 200 with a body that is not from Weir. It needs [Options.HTTP].
	Answer int `json:"answer,omitempty"`

	// Duplicate makes the proxy send every POST to the server twice, and return the second
	// response. It needs [Options.HTTP].
	Duplicate bool `json:"duplicate,omitempty"`

	// Loss is the share of UDP packets, from 0 to 1, that the proxy drops. Reorder is the share of
	// UDP packets that it delays so that later packets arrive first.
	Loss    float64 `json:"loss,omitempty"`
	Reorder float64 `json:"reorder,omitempty"`
}

// Step is a part of a schedule: conditions, and how long they last.
type Step struct {
	Conditions
	Reset bool // reset all connections at the beginning of the step
	For   time.Duration
}

// Schedule returns a random schedule: faults, and times without faults between them. The same seed
// returns the same schedule. If http is true, the schedule may contain Answer and Duplicate. If udp
// is true, the schedule is for a proxy that carries UDP packets instead of TCP connections.
func Schedule(seed uint64, steps int, http, udp bool) []Step {
	r := rand.New(rand.NewPCG(seed, 17))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	kinds := []func() Step{
		func() Step {
			return Step{Conditions: Conditions{Rate: Rate40kB}, For: between(200*time.Millisecond, 1500*time.Millisecond)}
		},
		func() Step {
			return Step{Conditions: Conditions{Rate: Rate1M}, For: between(200*time.Millisecond, 1500*time.Millisecond)}
		},
		func() Step {
			return Step{Conditions: Conditions{Rate: Rate10M}, For: between(200*time.Millisecond, 1500*time.Millisecond)}
		},
		func() Step {
			return Step{Conditions: Conditions{BlackHole: true}, For: between(100*time.Millisecond, 3*time.Second)}
		},
		func() Step {
			return Step{Conditions: Conditions{Delay: between(time.Millisecond, 200*time.Millisecond)}, For: between(200*time.Millisecond, time.Second)}
		},
	}
	if udp {
		kinds = append(kinds,
			func() Step {
				return Step{Conditions: Conditions{Loss: 0.3}, For: between(15*time.Millisecond, time.Second)}
			},
			func() Step {
				return Step{Conditions: Conditions{Reorder: 0.3}, For: between(100*time.Millisecond, time.Second)}
			},
			func() Step {
				return Step{Conditions: Conditions{Loss: 0.05, Reorder: 0.2}, For: between(100*time.Millisecond, time.Second)}
			})
	} else {
		kinds = append(kinds,
			func() Step { return Step{Reset: true} },
			func() Step { return Step{Reset: true} },
			func() Step {
				return Step{Reset: true, Conditions: Conditions{Refuse: true}, For: between(50*time.Millisecond, time.Second)}
			})
	}
	if http {
		kinds = append(kinds,
			func() Step {
				return Step{Conditions: Conditions{Answer: []int{200, 302, 403, 404, 520, 521, 530}[r.IntN(7)]}, For: between(50*time.Millisecond, time.Second)}
			},
			func() Step {
				return Step{Conditions: Conditions{Duplicate: true}, For: between(50*time.Millisecond, time.Second)}
			})
	}
	var all []Step
	for range steps {
		all = append(all, Step{For: between(20*time.Millisecond, 400*time.Millisecond)}, kinds[r.IntN(len(kinds))]())
	}
	return append(all, Step{})
}

// Play applies the steps of a schedule, one after the other. It returns early if ctx ends.
func (p *Proxy) Play(ctx context.Context, steps []Step) {
	for _, s := range steps {
		p.Set(s.Conditions)
		if s.Reset {
			p.Reset()
		}
		if !pause(ctx.Done(), s.For) {
			return
		}
	}
}

// String describes the step in a few words, for logs.
func (s Step) String() string {
	return fmt.Sprintf("%+v reset=%t for %v", s.Conditions, s.Reset, s.For)
}

// pause waits for the duration d. It returns false if the channel done is closed before that.
func pause(done <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
