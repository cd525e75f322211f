package sim

import (
	"context"
	"log/slog"
)

// logger returns the logger of a process. The trace shows warnings and errors, but they do not count
// towards the checksum of the history.
func (w *world) logger() *slog.Logger {
	if *traced {
		return slog.New(&traceLog{w: w, Handler: slog.DiscardHandler})
	}
	return slog.New(slog.DiscardHandler)
}

// traceLog adds log lines to the trace.
type traceLog struct {
	slog.Handler
	w *world
}

func (l *traceLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *traceLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *traceLog) WithGroup(string) slog.Handler      { return l }

func (l *traceLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "request_id" { // differs from run to run
			text += " " + a.String()
		}
		return true
	})
	l.w.show("log: " + text)
	return nil
}
