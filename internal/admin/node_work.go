package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"weir"
)

// Work is one line of the response to a request that changes the nodes or shards of a cluster: the
// step that has begun, or how the work ended.
type Work struct {
	Done  int    `json:"done"`  // steps that are done
	Total int    `json:"total"` // steps in all; 0 if unknown
	Doing string `json:"doing,omitempty"`
	Error string `json:"error,omitempty"`
	Ended bool   `json:"ended"` // the work is done, and this is the last line
}

// RemoveNode is the request body for removing a node.
type RemoveNode struct {
	Name  string `json:"name"`
	Force bool   `json:"force"` // the node is dead: give up its copies
}

// GrowShards is the request body for raising the number of shards.
type GrowShards struct {
	Shards int `json:"shards"`
}

// Cluster changes the nodes and shards of a cluster. The methods call tell with their progress.
type Cluster interface {
	Balance(ctx context.Context, tell func(Work)) error
	Remove(ctx context.Context, node RemoveNode, tell func(Work)) error
	Grow(ctx context.Context, shards int) error
}

// Cluster makes the handler serve POST /nodes/balance, /nodes/remove and /nodes/shards. The response
// has a line of JSON per step, and a last line with ended or an error.
func (h *Handler) Cluster(c Cluster) {
	h.mux.HandleFunc("POST /nodes/balance", func(w http.ResponseWriter, r *http.Request) {
		h.work(w, r, "the copies of all shards are spread over all nodes", func(tell func(Work)) error { return c.Balance(r.Context(), tell) })
	})
	h.mux.HandleFunc("POST /nodes/remove", func(w http.ResponseWriter, r *http.Request) {
		var ask RemoveNode
		if err := read(r, &ask); err != nil {
			h.refuse(w, r, err)
			return
		}
		h.work(w, r, "removed node "+ask.Name, func(tell func(Work)) error { return c.Remove(r.Context(), ask, tell) })
	})
	h.mux.HandleFunc("POST /nodes/shards", func(w http.ResponseWriter, r *http.Request) {
		var ask GrowShards
		if err := read(r, &ask); err != nil {
			h.refuse(w, r, err)
			return
		}
		h.work(w, r, fmt.Sprintf("new streams use %d shards", ask.Shards), func(func(Work)) error { return c.Grow(r.Context(), ask.Shards) })
	})
}

// refuse answers a request with an error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	h.answer(func(*http.Request) (any, error) { return nil, err })(w, r)
}

// work answers a request with the progress of the function do. If that function returns nil, the
// last line of the response is the text in the parameter ended, which says what was done.
func (h *Handler) work(w http.ResponseWriter, r *http.Request, ended string, do func(tell func(Work)) error) {
	said := false
	tell := func(line Work) {
		said = true
		json.NewEncoder(w).Encode(line)
		http.NewResponseController(w).Flush()
	}
	err := do(tell)
	if known, ok := err.(*weir.Error); ok && !said {
		h.refuse(w, r, known)
		return
	}
	if err != nil {
		h.logger.Error("changing the cluster failed: run the command again", "request", r.Pattern, "error", err)
		tell(Work{Error: err.Error()})
		return
	}
	h.logger.Info("changed the cluster", "result", ended)
	h.did(r, "cluster", ended)
	tell(Work{Doing: ended, Ended: true})
}

// FollowWork sends a request that changes the cluster to the server that is using a data directory.
// It writes a line for each step, as text or JSON, until the work has ended.
func FollowWork(ctx context.Context, data, path string, body any, asJSON bool, out io.Writer) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := Do(ctx, data, "POST", path, bytes.NewBuffer(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(resp.Body)
	for {
		var line Work
		if err := lines.Decode(&line); err != nil {
			return fmt.Errorf("the node ended early, see its log, and run the command again: %w", err)
		}
		switch {
		case asJSON:
			json.NewEncoder(out).Encode(line)
		case line.Total > 0:
			fmt.Fprintf(out, "%d of %d: %s\n", line.Done+1, line.Total, line.Doing)
		case line.Doing != "":
			fmt.Fprintln(out, line.Doing)
		}
		if line.Error != "" {
			return errors.New(line.Error)
		}
		if line.Ended {
			return nil
		}
	}
}
