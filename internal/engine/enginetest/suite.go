// Package enginetest is the one suite that every engine passes. Each case quotes the sentences of package engine that it
// checks, and a test holds the quotations against that package, so that neither changes without the other.
package enginetest

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/engine"
)

// Fixture is one store for one case. The suite closes every engine that it was given.
type Fixture struct {
	// Open opens the store, which is empty. It is called once.
	Open func(t *testing.T) engine.Engine

	// Reopen closes e and opens the store again on the same data. Nil for an engine that forgets: cases that need it
	// are skipped.
	Reopen func(t *testing.T, e engine.Engine) engine.Engine

	// Crash ends e as a kill or a power cut does, at this instant and whatever is in flight, and opens what is left.
	// It gives back what e holds, goroutines above all; calls on e may still be under way and may end in any way.
	// Nil for an engine that cannot be crashed: cases that need it are skipped.
	Crash func(t *testing.T, e engine.Engine) engine.Engine
}

// testCase is one thing to check.
type testCase struct {
	name    string
	promise []string // sentences of package engine, word for word
	run     func(s *store)
}

func cases() []testCase {
	return slices.Concat(appendCases, judgeCases, entryCases, readCases, scanCases, trimCases, restoreCases, dropCases,
		documentCases, listCases, closeCases, crashCases, randomCases)
}

// Run checks an engine. New is called once for each case and makes a store that nobody else uses.
func Run(t *testing.T, new func(t *testing.T) Fixture) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() {
				if t.Failed() {
					for _, p := range c.promise {
						t.Logf("the promise: %q", p)
					}
				} else {
					goleak.VerifyNone(t, before)
				}
			})
			c.run(start(t, new))
		})
	}
}
