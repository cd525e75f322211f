// Package enginetest is the one suite that every engine passes. Each case quotes the sentences of
// package engine that it checks. A test compares the quotations with that package, so neither can
// change without the other.
package enginetest

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/engine"
)

// Fixture is one store for one case. The suite closes every engine that a fixture returns.
type Fixture struct {
	// Open opens the store, which is empty. The suite calls it once.
	Open func(t *testing.T) engine.Engine

	// Reopen closes e and opens the store again on the same data. It is nil for an engine that
	// keeps nothing; cases that need it are then skipped.
	Reopen func(t *testing.T, e engine.Engine) engine.Engine

	// Crash ends e as a kill or a power cut does, at this instant and with calls in flight, and
	// opens the data that is left. It releases what e holds, above all goroutines. Calls on e may
	// still be running and may end in any way. It is nil for an engine that cannot be crashed;
	// cases that need it are then skipped.
	Crash func(t *testing.T, e engine.Engine) engine.Engine

	// Join opens the store a second time, as another process that shares it does. It is nil for an
	// engine that serves a single process; cases that need it are then skipped.
	Join func(t *testing.T) engine.Engine
}

// testCase is one behaviour to check.
type testCase struct {
	name    string
	promise []string // sentences of package engine, word for word
	run     func(s *store)
}

func cases() []testCase {
	return slices.Concat(appendCases, judgeCases, entryCases, readCases, scanCases, trimCases, restoreCases, dropCases,
		documentCases, listCases, watchCases, sharedCases, closeCases, crashCases, randomCases)
}

// Run checks an engine. It calls new once for each case; new returns a store that only this case
// uses.
func Run(t *testing.T, new func(t *testing.T) Fixture) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() {
				if t.Failed() {
					for _, p := range c.promise {
						t.Logf("promise: %q", p)
					}
				} else {
					goleak.VerifyNone(t, before)
				}
			})
			c.run(start(t, new))
		})
	}
}
