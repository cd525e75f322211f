package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// terminal is where a command talks to somebody, if anybody looks.
type terminal struct {
	w     io.Writer
	live  bool // a terminal: lines can be written over
	color bool

	mu     sync.Mutex
	status string // the line that is written over
}

// terminalOf looks at what a command writes to. NO_COLOR is respected, and so is a terminal that can nothing.
func terminalOf(w io.Writer) *terminal {
	live := isTerminal(w) && os.Getenv("TERM") != "dumb"
	return &terminal{w: w, live: live, color: live && os.Getenv("NO_COLOR") == ""}
}

// paint colours a text.
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

// show replaces the status line. Elsewhere than on a terminal there is none.
func (t *terminal) show(format string, a ...any) {
	if !t.live {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf(format, a...)
	if width := columns(t.w.(*os.File)); width > 0 && len(line) >= width { // a line that wraps cannot be written over
		line = line[:width-1]
	}
	t.status = line
	fmt.Fprintf(t.w, "\r\x1b[K%s", line)
}

// say writes a line for good, above the status line.
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

// done takes the status line away.
func (t *terminal) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status != "" {
		fmt.Fprint(t.w, "\r\x1b[K")
		t.status = ""
	}
}

// refresh calls show some times a second until stop is called, if anybody looks.
func (t *terminal) refresh(show func()) (stop func()) {
	if !t.live {
		return func() {}
	}
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show()
			case <-over:
				t.done()
				return
			}
		}
	}()
	return func() { close(over); <-gone }
}

// count is a number with its thousands apart.
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
