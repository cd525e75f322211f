package main

import (
	"bytes"
	"testing"
	"time"

	"weir"
	"weir/client"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 256 << 20: "256 MiB", 4 << 30: "4 GiB"} {
		if got := size(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestKeptFor(t *testing.T) {
	for s, want := range map[int64]string{60: "1m", 61: "1m1s", 3600: "1h", 3601: "1h0m1s", 5400: "1h30m", 86400: "24h", 36000: "10h", 600: "10m"} {
		if got := keptFor(weir.Stream{RetentionSeconds: s}); got != want {
			t.Errorf("%d s is %s, want %s", s, got, want)
		}
	}
}

// say writes its line above the status line.
func TestStatusLine(t *testing.T) {
	var b bytes.Buffer
	term := &terminal{w: &b}
	term.show("hidden") // shows nothing, because the output is not a terminal
	term.say("a %d", 1)
	term.status = "50%"
	term.say("b")
	term.done()
	if want := "a 1\n\r\x1b[Kb\n50%\r\x1b[K"; b.String() != want {
		t.Errorf("got %q, want %q", &b, want)
	}
}

// Control characters are escaped on a terminal and nowhere else.
func TestEscapeControls(t *testing.T) {
	event := []byte("{\"a\":\"\u009b31m\u007fé\"}")
	for live, want := range map[bool]string{true: `{"a":"\u009b31m\u007fé"}`, false: string(event)} {
		tail := &tailing{screen: &terminal{live: live}}
		if got := tail.escapeControls(event); string(got) != want {
			t.Errorf("on a terminal: %t: got %q, want %q", live, got, want)
		}
	}
}

func TestParseFrom(t *testing.T) {
	for s, want := range map[string]client.From{"head": client.Head, "0": client.Oldest, "7": client.After(7)} {
		if got, err := parseFrom(s); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", s, got, err, want)
		}
	}
}

// refresh calls the function show. The function that refresh returns ends its goroutine.
func TestRefresh(t *testing.T) {
	term := &terminal{live: true, w: new(bytes.Buffer)}
	shown := make(chan struct{}, 100)
	stop := term.refresh(func() { shown <- struct{}{} })
	select {
	case <-shown:
	case <-time.After(time.Minute):
		t.Error("refresh did not call show")
	}
	stop()
}
