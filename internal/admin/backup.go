package admin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"weir"
)

// Backup is a consistent copy of everything that the server keeps, at the moment that it was made.
type Backup interface {
	// Size is about how many bytes Copy writes.
	Size() int64
	// Copy writes the copy. It does not hold up the server, whatever w does.
	Copy(ctx context.Context, w io.Writer) error
	// Close gives back what the copy holds.
	Close()
}

const (
	// backupStall is how long a client may take nothing: what a backup holds cannot be reclaimed meanwhile.
	backupStall = 30 * time.Second
	// SizeHeader tells a client about how much is to come.
	SizeHeader = "X-Weir-Backup-Size"
)

var errBackup = &weir.Error{Code: weir.Overloaded, Message: "a backup is being taken already"}

// Backups has the handler serve POST /backup[?rate=BYTES_A_SECOND]: the copy that take makes. One is taken at a time. A
// copy that fails ends in a cut-off response.
func (h *Handler) Backups(take func(context.Context) (Backup, error)) {
	var taking atomic.Bool
	h.mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		if !taking.CompareAndSwap(false, true) {
			h.answer(func(*http.Request) (any, error) { return nil, errBackup })(w, r)
			return
		}
		defer taking.Store(false)
		rate, err := backupRate(r)
		var b Backup
		if err == nil {
			b, err = take(r.Context())
		}
		if err != nil {
			h.answer(func(*http.Request) (any, error) { return nil, err })(w, r)
			return
		}
		defer b.Close()
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set(SizeHeader, strconv.FormatInt(b.Size(), 10))
		start := time.Now()
		h.logger.Info("backup begins", "bytes", b.Size())
		p := &paced{ctx: r.Context(), w: w, control: http.NewResponseController(w), rate: rate, start: start}
		if err := b.Copy(r.Context(), p); err != nil {
			h.logger.Warn("backup failed", "error", err, "bytes", p.sent)
			panic(http.ErrAbortHandler) // the client sees that the response is cut off
		}
		h.logger.Info("backup taken", "bytes", p.sent, "seconds", time.Since(start).Seconds())
	})
}

func backupRate(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("rate")
	if text == "" {
		return 0, nil
	}
	rate, err := strconv.ParseInt(text, 10, 64)
	if err != nil || rate < 0 {
		return 0, weir.Errorf(weir.InvalidRequest, "rate is not a number of bytes a second")
	}
	return rate, nil
}

// paced writes at most so many bytes a second, and gives up on a client that takes nothing.
type paced struct {
	ctx     context.Context
	w       io.Writer
	control *http.ResponseController
	rate    int64 // 0: as fast as it goes
	start   time.Time
	sent    int64
}

// pacedPiece is how much is written between looks at the clock.
const pacedPiece = 256 << 10

func (p *paced) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b[:min(len(b), pacedPiece)]
		_ = p.control.SetWriteDeadline(time.Now().Add(backupStall))
		m, err := p.w.Write(piece)
		n += m
		p.sent += int64(m)
		if err != nil {
			return n, fmt.Errorf("send to the client: %w", err)
		}
		b = b[m:]
		if err := p.wait(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait lets time catch up with the rate.
func (p *paced) wait() error {
	if p.rate <= 0 {
		return p.ctx.Err()
	}
	due := time.Duration(float64(p.sent) / float64(p.rate) * float64(time.Second))
	ahead := due - time.Since(p.start)
	if ahead < time.Millisecond {
		return p.ctx.Err()
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}
