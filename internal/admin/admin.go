// Package admin is the operator's API for tasks that /v1 does not offer: projects, keys, management
// tokens, backups, migrations and the nodes of a cluster. The server offers this API on a Unix
// socket that only the owner of the data directory can open. There is no other authentication: a
// process that can open the socket has full access.
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
//	GET  /keys[?project=NAME]  POST /keys {project, kind, permissions, streams, name, revoke_after}
//	POST /keys/{id}/revoke
//	GET  /tokens               POST /tokens {name}
//	POST /tokens/{id}/revoke
//	POST /backup[?rate=BYTES_PER_SECOND], once Backups was called
//	POST /migrate {from}, once Migrations was called
//	GET  /nodes, once Nodes was called
//	POST /nodes/balance, /nodes/remove {name, force}, /nodes/shards {shards}, once Cluster was called
type Handler struct {
	// Note, if set, is called after every change, with an entry for the audit log. The entry never
	// contains a key, only the masked form of a key.
	Note func(ctx context.Context, what, detail string)

	access *access.Access
	logger *slog.Logger
	mux    *http.ServeMux
}

// did passes a change to the function Note, if it is set.
func (h *Handler) did(r *http.Request, what, detail string) {
	if h.Note != nil {
		h.Note(r.Context(), what, detail)
	}
}

// New returns a handler that manages projects, keys and management tokens. It serves no backups,
// migrations or nodes until Backups, Migrations, Nodes and Cluster are called.
func New(a *access.Access, l *slog.Logger) *Handler {
	h := &Handler{access: a, logger: l, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /projects", h.answer(h.projects))
	h.mux.HandleFunc("POST /projects", h.answer(h.createProject))
	h.mux.HandleFunc("GET /keys", h.answer(h.keys))
	h.mux.HandleFunc("POST /keys", h.answer(h.createKey))
	h.mux.HandleFunc("POST /keys/{id}/revoke", h.answer(h.revoke))
	h.mux.HandleFunc("GET /tokens", h.answer(h.tokens))
	h.mux.HandleFunc("POST /tokens", h.answer(h.createToken))
	h.mux.HandleFunc("POST /tokens/{id}/revoke", h.answer(h.revokeToken))
	h.mux.HandleFunc("/", h.answer(h.none))
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); path.Clean(p) != p { // the mux would redirect to the clean path
		h.answer(h.none)(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// none answers a request for an unknown route. The message does not repeat the path, because the
// path may contain a key.
func (h *Handler) none(*http.Request) (any, error) {
	return nil, weir.Errorf(weir.NotFound, "unknown request; the server may have a different version than this command")
}

// Error is the response to a refused request.
type Error struct {
	Code    weir.Code `json:"code"`
	Message string    `json:"message"`
}

// answer writes the result of f as JSON. An error of type weir.Error is meant for the operator and
// is returned with its message. Any other error is a fault of the server: it is logged, and the
// response does not repeat it.
func (h *Handler) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		v, err := f(r)
		if err != nil {
			e := Error{weir.InternalError, "internal error; see the log of the server"}
			var known *weir.Error
			if errors.As(err, &known) {
				e = Error{known.Code, known.Message}
			} else {
				// Log the pattern and not the path, because the path may contain a key.
				h.logger.Error("admin request failed", "request", r.Pattern, "error", err)
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

// read decodes a body of one JSON value. Unknown members are an error, so that a misspelt
// permission or restriction is never silently ignored.
func read(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 64<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		// The error quotes an unknown member, which may be a key.
		return weir.Errorf(weir.InvalidRequest, "read the request body: %s", access.Redacted(err.Error()))
	}
	if _, err := d.Token(); err != io.EOF {
		return weir.Errorf(weir.InvalidRequest, "read the request body: more than one JSON value")
	}
	return nil
}
