package weir

import "time"

// Time is a moment in Unix milliseconds, the precision of every timestamp of the service.
type Time int64

// layout is RFC 3339 in UTC with exactly three digits of a second.
const layout = "2006-01-02T15:04:05.000Z"

// TimeOf cuts t to the millisecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Std is the same moment as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add moves t by d, cut to the millisecond.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

// String is the form that the interface shows: 2026-11-15T00:00:00.000Z.
func (t Time) String() string { return t.Std().Format(layout) }

// AppendFormat appends what String returns to b.
func (t Time) AppendFormat(b []byte) []byte { return t.Std().AppendFormat(b, layout) }

// MarshalText writes the form of String, also inside JSON.
func (t Time) MarshalText() ([]byte, error) { return t.AppendFormat(nil), nil }

// UnmarshalText reads any RFC 3339 time.
func (t *Time) UnmarshalText(b []byte) error {
	s, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return err
	}
	*t = TimeOf(s)
	return nil
}
