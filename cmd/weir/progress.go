package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows the progress of a command on a terminal. If the output is not a terminal, it shows
// nothing.
type progress struct {
	w     io.Writer // nil if the output is not a terminal
	total int64
	start time.Time
	shown time.Time
}

func newProgress(w io.Writer, total int64) *progress {
	p := &progress{total: total, start: time.Now()}
	if isTerminal(w) {
		p.w = w
	}
	return p
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTTY(f)
}

// update shows the progress: the number of bytes that are done, out of a total.
func (p *progress) update(done, total int64) {
	p.total = total
	p.at(done)
}

func (p *progress) at(done int64) {
	if p.w == nil || time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%s", p.line(done, time.Since(p.start)))
}

// line returns the text to show: the share that is done, the rate and the time left.
func (p *progress) line(done int64, took time.Duration) string {
	rate := float64(done) / max(took.Seconds(), 1e-3)
	s := fmt.Sprintf("%s, %s/s", size(done), size(int64(rate)))
	if p.total > 0 && done > 0 {
		left := time.Duration(float64(max(p.total-done, 0)) / max(rate, 1) * float64(time.Second))
		s = fmt.Sprintf("%3d%% of %s, %s/s, %v left", min(100, done*100/p.total), size(p.total), size(int64(rate)), left.Round(time.Second))
	}
	return s
}

func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// counter counts the bytes that are read from all of its readers.
type counter struct {
	n        int64
	progress *progress
}

// reader returns a reader that reads from r and counts the bytes.
func (c *counter) reader(r io.Reader) io.Reader { return counting{r, c} }

type counting struct {
	r io.Reader
	c *counter
}

func (r counting) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.c.n += int64(n)
	r.c.progress.at(r.c.n)
	return n, err
}
