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

// Backup is a consistent copy of all data of the server, as of the moment when the copy was taken.
type Backup interface {
	// Size is an estimate of the number of bytes that Copy writes.
	Size() int64
	// Copy writes the backup to w. The server continues meanwhile, even if w blocks.
	Copy(ctx context.Context, w io.Writer) error
	// Close releases the resources of the copy, such as journal segments that are kept for it.
	Close() error
}

const (
	// backupStall is the longest time for which a client may accept no data. Without this limit,
	// the segments of the backup could not be reclaimed while a client stalls.
	backupStall = 30 * time.Second
	// SizeHeader is the header field with the estimated size of the response in bytes.
	SizeHeader = "X-Weir-Backup-Size"
)

var errBackup = &weir.Error{Code: weir.Overloaded, Message: "another backup is in progress"}

// maxSummary limits the size of the description of an earlier backup.
const maxSummary = 64 << 20

// Backups makes the handler serve POST /backup[?rate=BYTES_PER_SECOND]. The response is the copy
// that the function take returns. The second argument of that function is the request body, which
// is empty or describes an earlier backup. The copy leaves out the files of that earlier backup.
// Only one backup runs at a time; a second request is refused. If copying fails, the response is
// cut off, so that the client cannot mistake it for a complete backup.
func (h *Handler) Backups(take func(ctx context.Context, since []byte) (Backup, error)) {
	var taking atomic.Bool
	h.mux.HandleFunc("POST /backup", func(w http.ResponseWriter, r *http.Request) {
		if !taking.CompareAndSwap(false, true) {
			h.answer(func(*http.Request) (any, error) { return nil, errBackup })(w, r)
			return
		}
		defer taking.Store(false)
		rate, err := backupRate(r)
		var since []byte
		if err == nil {
			since, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxSummary))
		}
		var b Backup
		if err == nil {
			b, err = take(r.Context(), since)
		}
		if err != nil {
			h.answer(func(*http.Request) (any, error) { return nil, err })(w, r)
			return
		}
		defer func() {
			if err := b.Close(); err != nil {
				h.logger.Warn("cleaning up after a backup failed", "error", err)
			}
		}()
		w.Header().Set("Content-Type", "application/x-tar")
		w.Header().Set(SizeHeader, strconv.FormatInt(b.Size(), 10))
		start := time.Now()
		h.logger.Info("backup started", "bytes", b.Size())
		p := &paced{ctx: r.Context(), w: w, control: http.NewResponseController(w), rate: rate, start: start}
		if err := b.Copy(r.Context(), p); err != nil {
			h.logger.Warn("backup failed", "error", err, "bytes", p.sent)
			panic(http.ErrAbortHandler) // cuts the response off
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
		return 0, weir.Errorf(weir.InvalidRequest, "rate must be a number of bytes per second, or 0 for no limit")
	}
	return rate, nil
}

// paced is a writer with a limit of rate bytes per second. It fails if the client accepts no data
// for backupStall.
type paced struct {
	ctx     context.Context
	w       io.Writer
	control *http.ResponseController
	rate    int64 // bytes per second; 0 is unlimited
	start   time.Time
	sent    int64
}

// pacedPiece is the number of bytes written between two checks of the clock.
const pacedPiece = 256 << 10

func (p *paced) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b[:min(len(b), pacedPiece)]
		_ = p.control.SetWriteDeadline(time.Now().Add(backupStall))
		m, err := p.w.Write(piece)
		n += m
		p.sent += int64(m)
		if err != nil {
			return n, fmt.Errorf("send backup to the client: %w", err)
		}
		b = b[m:]
		if err := p.wait(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait sleeps until the average rate since the start is within the limit again.
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
