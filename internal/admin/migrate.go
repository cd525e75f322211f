package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"weir"
)

// NewMigration is the request body for a migration. The node copies the data directory From, which
// belongs to a single server, into its own store.
type NewMigration struct {
	From string `json:"from"`
}

// Migration is one line of the response: the progress so far, or how the migration ended.
type Migration struct {
	Documents int     `json:"documents"`
	Streams   int     `json:"streams"`
	Batches   int     `json:"batches"`
	Bytes     int64   `json:"bytes"`
	Error     string  `json:"error,omitempty"`
	Done      bool    `json:"done"`
	Seconds   float64 `json:"seconds"`
}

// migrationEvery is the interval at which the response reports progress.
const migrationEvery = time.Second

// Migrations makes the handler serve POST /migrate {from}. The response has a line of JSON per
// second with the progress, and a last line with done or an error. The function take copies the
// data and calls the function tell with its progress.
func (h *Handler) Migrations(take func(ctx context.Context, from string, tell func(Migration)) (Migration, error)) {
	h.mux.HandleFunc("POST /migrate", func(w http.ResponseWriter, r *http.Request) {
		var ask NewMigration
		if err := read(r, &ask); err != nil {
			h.answer(func(*http.Request) (any, error) { return nil, err })(w, r)
			return
		}
		start, last := time.Now(), time.Time{}
		say := func(m Migration) {
			last = time.Now()
			m.Seconds = time.Since(start).Seconds()
			json.NewEncoder(w).Encode(m)
			http.NewResponseController(w).Flush()
		}
		m, err := take(r.Context(), ask.From, func(m Migration) {
			if time.Since(last) >= migrationEvery {
				say(m)
			}
		})
		if known, ok := err.(*weir.Error); ok && last.IsZero() {
			h.answer(func(*http.Request) (any, error) { return nil, known })(w, r)
			return
		}
		m.Done = err == nil
		if err != nil {
			m.Error = err.Error()
			h.logger.Error("migration failed: run it again", "from", ask.From, "error", err)
		} else {
			h.logger.Info("migrated", "from", ask.From, "streams", m.Streams, "batches", m.Batches, "bytes", m.Bytes)
		}
		say(m)
	})
}
