package memory

import (
	"maps"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/enginetest"
)

func TestEngine(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Fixture {
		return enginetest.Fixture{Open: func(*testing.T) engine.Engine { return New() }}
	})
}

// The memory engine has no disk. This test uses a copy of the memory instead, so that the cases
// about restarts and crashes run too.
func TestEngineWithRestarts(t *testing.T) {
	enginetest.Run(t, func(t *testing.T) enginetest.Fixture {
		return enginetest.Fixture{
			Open: func(*testing.T) engine.Engine { return New() },
			Reopen: func(t *testing.T, e engine.Engine) engine.Engine {
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				return remembered(e.(*Engine))
			},
			Crash: func(t *testing.T, e engine.Engine) engine.Engine {
				after := remembered(e.(*Engine))
				e.Close()
				return after
			},
		}
	})
}

// remembered returns an engine with the same content as e, in which no log is open.
func remembered(e *Engine) *Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	after := New()
	after.revision, after.docs = e.revision, maps.Clone(e.docs)
	for id, l := range e.logs {
		l.mu.Lock()
		after.logs[id] = &log{entries: append([]engine.Entry(nil), l.entries...), low: l.low, note: l.note}
		l.mu.Unlock()
	}
	return after
}
