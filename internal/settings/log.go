package settings

import (
	"io"
	"log/slog"
	"os"
	"strings"
)

// newLogger returns a logger that writes to w. If format is empty, it writes text to a terminal and
// JSON to anything else.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	if format == "" {
		format = "json"
		if f, ok := w.(*os.File); ok {
			if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
				format = "text"
			}
		}
	}
	o := &slog.HandlerOptions{Level: level}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// levels are the values of --log-level.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

func isLevel(s string) bool {
	_, ok := levels[strings.ToLower(s)]
	return ok
}

func levelOf(s string) slog.Level { return levels[strings.ToLower(s)] }
