package weir_test

import (
	"encoding/json"
	"testing"
	"time"

	"weir"
)

func TestTimeFormat(t *testing.T) {
	for _, c := range []struct {
		at   weir.Time
		want string
	}{
		{0, "1970-01-01T00:00:00.000Z"},
		{1, "1970-01-01T00:00:00.001Z"},
		{10, "1970-01-01T00:00:00.010Z"},
		{100, "1970-01-01T00:00:00.100Z"}, // always three digits
		{1000, "1970-01-01T00:00:01.000Z"},
		{-1, "1969-12-31T23:59:59.999Z"},
		{-1000, "1969-12-31T23:59:59.000Z"},
		{-1001, "1969-12-31T23:59:58.999Z"},
		{1794700800000, "2026-11-15T00:00:00.000Z"},
		{1709164800123, "2024-02-29T00:00:00.123Z"},
		{253402300799999, "9999-12-31T23:59:59.999Z"},
		{-62135596800000, "0001-01-01T00:00:00.000Z"},
		{-62167219200000, "0000-01-01T00:00:00.000Z"},
		{1078272245678, "2004-03-03T00:04:05.678Z"},
	} {
		if got := c.at.String(); got != c.want {
			t.Errorf("String of %d is %s, want %s", int64(c.at), got, c.want)
		}
		if got := string(c.at.AppendFormat([]byte("at "))); got != "at "+c.want {
			t.Errorf("AppendFormat of %d is %q, want %q", int64(c.at), got, "at "+c.want)
		}
		var back weir.Time
		if err := back.UnmarshalText([]byte(c.want)); err != nil || back != c.at {
			t.Errorf("UnmarshalText(%s) = %d, %v; want %d", c.want, int64(back), err, int64(c.at))
		}
		if got := weir.TimeOf(c.at.Std()); got != c.at {
			t.Errorf("converting %d to time.Time and back gives %d", int64(c.at), int64(got))
		}
	}
}

func TestTimeParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want weir.Time
	}{
		{"2026-11-15T00:00:00Z", 1794700800000},
		{"2026-11-15T01:00:00+01:00", 1794700800000},
		{"2026-11-14T16:00:00.000-08:00", 1794700800000},
		{"2026-11-15T00:00:00.5Z", 1794700800500},
		{"2026-11-15T00:00:00.123999999Z", 1794700800123}, // truncated, not rounded
		{"1969-12-31T23:59:59.9999Z", -1},                 // before 1970, truncation also goes towards the past
	} {
		var got weir.Time
		if err := got.UnmarshalText([]byte(c.in)); err != nil || got != c.want {
			t.Errorf("UnmarshalText(%s) = %d, %v; want %d", c.in, int64(got), err, int64(c.want))
		}
	}
	for _, in := range []string{
		"", "now", "0", "1794700800000", "2026-11-15", "2026-11-15 00:00:00Z", "2026-11-15T00:00:00",
		"2026-02-30T00:00:00Z", "2026-11-15T24:00:00Z", "2026-11-15T00:00:00Z ", "2026-11-15T00:00:00.000ZZ",
	} {
		got := weir.Time(42)
		if err := got.UnmarshalText([]byte(in)); err == nil || got != 42 {
			t.Errorf("UnmarshalText(%q) = %d, %v; want an error and an unchanged value", in, int64(got), err)
		}
	}
}

func TestTimeOfTruncates(t *testing.T) {
	for _, c := range []struct {
		nanos int64
		want  weir.Time
	}{{0, 0}, {999_999, 0}, {1_000_000, 1}, {1_999_999, 1}, {-1, -1}, {-1_000_000, -1}, {-1_000_001, -2}} {
		if got := weir.TimeOf(time.Unix(0, c.nanos)); got != c.want {
			t.Errorf("%d ns is %d ms, want %d", c.nanos, int64(got), int64(c.want))
		}
	}
	if weir.TimeOf(weir.Time(5).Std().In(time.FixedZone("", 3600))) != 5 {
		t.Error("TimeOf depends on the time zone")
	}
	if zone := weir.Time(5).Std().Location(); zone != time.UTC {
		t.Errorf("Std is in %s, want UTC", zone)
	}
}

func TestTimeAdd(t *testing.T) {
	for _, c := range []struct {
		at   weir.Time
		d    time.Duration
		want weir.Time
	}{{0, 0, 0}, {10, 2 * time.Second, 2010}, {10, -time.Second, -990}, {10, 999 * time.Microsecond, 10}, {-5, 5 * time.Millisecond, 0}} {
		if got := c.at.Add(c.d); got != c.want {
			t.Errorf("%d + %s = %d, want %d", int64(c.at), c.d, int64(got), int64(c.want))
		}
	}
}

// The objects that clients see hold times as text.
func TestTimeInJSON(t *testing.T) {
	in := weir.Cursor{Cursor: 7, UpdatedAt: 1794700800000}
	b, err := json.Marshal(in)
	if want := `{"cursor":7,"updated_at":"2026-11-15T00:00:00.000Z"}`; err != nil || string(b) != want {
		t.Fatalf("got %s, %v; want %s", b, err, want)
	}
	var out weir.Cursor
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%s decodes to %+v, %v; want %+v", b, out, err, in)
	}
}
