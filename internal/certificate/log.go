package certificate

import (
	"context"
	"log/slog"

	"go.uber.org/zap/zapcore"
)

// core passes the log entries of certmagic, which uses zap, to a slog handler.
type core struct{ h slog.Handler }

// level maps the levels of zap to those of slog, which has none above error.
func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (c core) Enabled(l zapcore.Level) bool { return c.h.Enabled(context.Background(), level(l)) }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.h.WithAttrs(attributes(fields))}
}

func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, level(e.Level), "acme: "+e.Message, 0)
	r.AddAttrs(attributes(fields)...)
	return c.h.Handle(context.Background(), r)
}

func (core) Sync() error { return nil }

// attributes converts the fields of an entry. A field may encode to several attributes.
func attributes(fields []zapcore.Field) []slog.Attr {
	var all []slog.Attr
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for k, v := range m.Fields {
			all = append(all, slog.Any(k, v))
		}
	}
	return all
}
