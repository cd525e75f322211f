// Package enginetest is the test suite that every engine must pass. Each case quotes the sentences
// of package engine that it checks. A test compares the quotations with package engine, so a
// sentence and its quotation can only change together.
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
	// loses its data on Close. Cases that need Reopen are then skipped.
	Reopen func(t *testing.T, e engine.Engine) engine.Engine

	// Crash ends e at once and with calls in flight, as a kill or a power cut does, and opens the
	// data that is left. It also releases the resources of e, above all goroutines. Calls on e may
	// still be running, and may return any result. Crash is nil for an engine that cannot be
	// crashed. Cases that need Crash are then skipped.
	Crash func(t *testing.T, e engine.Engine) engine.Engine

	// Join opens the store a second time, as another process that shares it does. It is nil for an
	// engine that serves a single process. Cases that need Join are then skipped.
	Join func(t *testing.T) engine.Engine
}

// testCase is one behaviour to check.
type testCase struct {
	name    string
	promise []string // sentences of package engine, word for word
	run     func(s *store)
}

func cases() []testCase {
	return slices.Concat(appendCases, proposeCases, judgeCases, entryCases, readCases, scanCases, trimCases, restoreCases, dropCases,
		documentCases, listCases, watchCases, sharedCases, resumeCases, closeCases, crashCases, randomCases)
}

// Run runs all cases. It calls the function new once for each case. This function must return a
// store that no other case uses.
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
