package weir

import "time"

// Time is a point in time in Unix milliseconds, the precision of every timestamp in Weir.
type Time int64

// layout is RFC 3339 in UTC with exactly three fractional digits.
const layout = "2006-01-02T15:04:05.000Z"

// TimeOf truncates t to the millisecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t+d, with d truncated to the millisecond.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

// String returns t as clients see it, for example 2026-11-15T00:00:00.000Z.
func (t Time) String() string { return string(t.AppendFormat(make([]byte, 0, len(layout)))) }

// AppendFormat appends String to b.
func (t Time) AppendFormat(b []byte) []byte {
	s := t.Std()
	year, month, day := s.Date()
	if year < 0 || year > 9999 {
		return s.AppendFormat(b, layout)
	}
	// s.AppendFormat would be slower, because it interprets the layout on every call, and every
	// response has a time.
	hour, minute, second := s.Clock()
	ms := s.Nanosecond() / int(time.Millisecond)
	two := func(n int, after byte) { b = append(b, '0'+byte(n/10), '0'+byte(n%10), after) }
	b = append(b, '0'+byte(year/1000), '0'+byte(year/100%10))
	two(year%100, '-')
	two(int(month), '-')
	two(day, 'T')
	two(hour, ':')
	two(minute, ':')
	two(second, '.')
	return append(b, '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// MarshalText returns String. JSON encoding uses it too.
func (t Time) MarshalText() ([]byte, error) { return t.AppendFormat(nil), nil }

// UnmarshalText parses any RFC 3339 time and truncates it to the millisecond. On an error, t keeps
// its value.
func (t *Time) UnmarshalText(b []byte) error {
	s, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return err
	}
	*t = TimeOf(s)
	return nil
}
