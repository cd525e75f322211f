// Package admin is what an operator does beyond /v1: projects and keys. It is served on a Unix socket that only the
// owner of the data directory can open.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path"

	"weir"
	"weir/internal/access"
)

// Handler serves the operator's requests:
//
//	GET  /projects             POST /projects {name}
//	GET  /keys[?project=NAME]  POST /keys {project, kind, permissions, streams, name}
//	POST /keys/{id}/revoke
//	POST /backup[?rate=BYTES_A_SECOND], once Backups said how
type Handler struct {
	// Note, where it is set, is told of every change that was made.
	Note func(ctx context.Context, what, detail string)

	access *access.Access
	logger *slog.Logger
	mux    *http.ServeMux
}

// did tells of a change.
func (h *Handler) did(r *http.Request, what, detail string) {
	if h.Note != nil {
		h.Note(r.Context(), what, detail)
	}
}

// New makes the handler.
func New(a *access.Access, l *slog.Logger) *Handler {
	h := &Handler{access: a, logger: l, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /projects", h.answer(h.projects))
	h.mux.HandleFunc("POST /projects", h.answer(h.createProject))
	h.mux.HandleFunc("GET /keys", h.answer(h.keys))
	h.mux.HandleFunc("POST /keys", h.answer(h.createKey))
	h.mux.HandleFunc("POST /keys/{id}/revoke", h.answer(h.revoke))
	h.mux.HandleFunc("/", h.answer(h.none))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); path.Clean(p) != p { // the mux would redirect, and a client would follow
		h.answer(h.none)(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// none answers what there is not. The path is not repeated: it may hold a key.
func (h *Handler) none(*http.Request) (any, error) {
	return nil, weir.Errorf(weir.NotFound, "there is no such request: the server may be of another version")
}

// Error is how a refusal looks on the socket.
type Error struct {
	Code    weir.Code `json:"code"`
	Message string    `json:"message"`
}

// answer writes what a function returns. Errors that the operator may know go out as they are; others are logged.
func (h *Handler) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		v, err := f(r)
		if err != nil {
			e := Error{weir.InternalError, "something went wrong: the server's log says what"}
			var known *weir.Error
			if errors.As(err, &known) {
				e = Error{known.Code, known.Message}
			} else {
				h.logger.Error("admin request failed", "request", r.Pattern, "error", err) // the path may hold a key
			}
			w.WriteHeader(status(e.Code))
			v = e
		}
		h.logger.Debug("admin request", "request", r.Pattern, "refused", err != nil)
		json.NewEncoder(w).Encode(v)
	}
}

func status(c weir.Code) int {
	switch c {
	case weir.NotFound:
		return http.StatusNotFound
	case weir.InternalError:
		return http.StatusInternalServerError
	case weir.StorageUnavailable, weir.Overloaded:
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// read decodes a body; what is not expected is refused.
func read(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return weir.Errorf(weir.InvalidRequest, "the body: %s", access.Redacted(err.Error())) // it names what it does not know
	}
	if _, err := d.Token(); err != io.EOF {
		return weir.Errorf(weir.InvalidRequest, "the body: more than one JSON value")
	}
	return nil
}
