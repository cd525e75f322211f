package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// terminal is an output of a command. The output may be a terminal, a file or a pipe.
type terminal struct {
	w     io.Writer
	live  bool // the output is a terminal, so a line can be overwritten
	color bool

	mu     sync.Mutex
	status string // the line at the bottom, which the method show overwrites
}

// terminalOf examines an output. It respects NO_COLOR and TERM=dumb.
func terminalOf(w io.Writer) *terminal {
	live := isTerminal(w) && os.Getenv("TERM") != "dumb"
	return &terminal{w: w, live: live, color: live && os.Getenv("NO_COLOR") == ""}
}

// paint colours a text if the terminal shows colours.
func (t *terminal) paint(code, text string) string {
	if !t.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	dim    = "2"
	bold   = "1"
	yellow = "33"
)

// show replaces the status line. If the output is not a terminal, it does nothing.
func (t *terminal) show(format string, a ...any) {
	if !t.live {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf(format, a...)
	if width := columns(t.w.(*os.File)); width > 0 && len(line) >= width { // a line that wraps cannot be overwritten
		line = line[:width-1]
	}
	t.status = line
	fmt.Fprintf(t.w, "\r\x1b[K%s", line)
}

// say writes a line above the status line. Unlike the status line, the line is not overwritten.
func (t *terminal) say(format string, a ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := fmt.Sprintf(format, a...)
	if t.status != "" {
		fmt.Fprintf(t.w, "\r\x1b[K%s\n%s", text, t.status)
		return
	}
	fmt.Fprintln(t.w, text)
}

// sayLimited reports that a request will be repeated when the rate limit allows it.
func (t *terminal) sayLimited(wait time.Duration) {
	t.say("weir: rate limited; retrying in %.0f s", wait.Seconds())
}

// done removes the status line.
func (t *terminal) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status != "" {
		fmt.Fprint(t.w, "\r\x1b[K")
		t.status = ""
	}
}

// refresh calls the function show five times per second, until the caller calls the function stop,
// which refresh returns. If the output is not a terminal, it does nothing.
func (t *terminal) refresh(show func()) (stop func()) {
	if !t.live {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show()
			case <-quit:
				t.done()
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// count formats a number with commas between thousands.
func count(n int64) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
