package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/disk"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/journal"
)

const migratePath = "/migrate"

// migration is a line of the answer: how far it is, or how it ended.
type migration struct {
	transferred
	Error   string  `json:"error,omitempty"`
	Done    bool    `json:"done"`
	Seconds float64 `json:"seconds"`
}

func migrateCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{
		Use: "migrate DIR", Short: "Move what a server with the journal kept onto a cluster", Args: args("DIR"),
		Long: `Move what a server with the journal kept onto a cluster that was never used: streams with their batches,
sequences and times as they are, projects, keys, the audit log and the password of the dashboard.

DIR is the data directory of the old server, which must not run; it is left as it is. --data names that of a
running node of the cluster on this machine. What the first start of the cluster made goes: its project, its
key and its stream. A cluster in which a stream has batches is refused. Meanwhile no key is valid; they are
copied last. When it was cut off, run it again.`,
		Example: "  weir migrate /var/lib/weir --data /var/lib/weir-cluster",
		RunE: func(c *cobra.Command, got []string) error {
			dir, err := filepath.Abs(got[0])
			if err != nil {
				return err
			}
			return migrate(c, data, dir, asJSON)
		},
	}
	return operator(c, &data, &asJSON)
}

// migrate asks a running node, and shows how far it is.
func migrate(c *cobra.Command, data, dir string, asJSON bool) error {
	b, err := json.Marshal(map[string]string{"from": dir})
	if err != nil {
		return err
	}
	ctx := c.Context()
	read, write := io.Pipe()
	go func() { write.Write(b); write.Close() }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://weir"+migratePath, read)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: socketTransport(data)}).Do(r)
	if err != nil {
		return askFault(data, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	p := newProgress(c.ErrOrStderr(), 0)
	lines := json.NewDecoder(resp.Body)
	for {
		var m migration
		if err := lines.Decode(&m); err != nil {
			p.end()
			return fmt.Errorf("the node broke off: its log says why (%w)", err)
		}
		p.at(m.Bytes)
		if m.Error != "" {
			p.end()
			return fmt.Errorf("migrate %s: %s", dir, m.Error)
		}
		if m.Done {
			p.end()
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(m)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d streams, %d batches, %s in %.1fs\n", dir, m.Streams, m.Batches, inBytes(m.Bytes), m.Seconds)
			return nil
		}
	}
}

var errNotCluster = errors.New("this server keeps everything in a journal: name the data directory of a node of a cluster with --data")

// migrations lets the operator's socket take over the data of a server with the journal.
func (svc *service) migrations(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != migratePath || r.Method != http.MethodPost {
			h.ServeHTTP(w, r)
			return
		}
		var ask struct {
			From string `json:"from"`
		}
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&ask)
		if err == nil && svc.store.jetstream == nil {
			err = errNotCluster
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]string{"message": err.Error()})
			return
		}
		svc.migrateInto(w, r, ask.From)
	})
}

// migrateInto copies, and tells of it.
func (svc *service) migrateInto(w http.ResponseWriter, r *http.Request, dir string) {
	start := time.Now()
	last := time.Time{}
	say := func(m migration) {
		m.Seconds = time.Since(start).Seconds()
		json.NewEncoder(w).Encode(m)
		http.NewResponseController(w).Flush()
	}
	done, err := svc.takeOver(r.Context(), dir, func(t transferred) {
		if time.Since(last) >= time.Second {
			last = time.Now()
			say(migration{transferred: t})
		}
	})
	m := migration{transferred: done, Done: err == nil}
	if err != nil {
		m.Error = err.Error()
		svc.logger.Error("a migration failed: run it again", "from", dir, "error", err)
	} else {
		svc.logger.Info("migrated", "from", dir, "streams", done.Streams, "batches", done.Batches, "bytes", done.Bytes)
	}
	say(m)
}

// takeOver copies what a journal keeps into the store, as another process would: the hub of this one follows.
func (svc *service) takeOver(ctx context.Context, dir string, tell func(transferred)) (transferred, error) {
	journals := filepath.Join(dir, journalDir)
	if _, err := os.Stat(journals); err != nil {
		return transferred{}, fmt.Errorf("%s is not the data directory of a server with the journal: %w", dir, err)
	}
	from, err := journal.Open(disk.OS(journals), journal.Options{})
	if err != nil {
		return transferred{}, fmt.Errorf("open %s: %w", journals, err)
	}
	defer from.Close()
	nc, err := svc.store.connect()
	if err != nil {
		return transferred{}, err
	}
	// The store is there, since this node runs on it, and has as many replicas as were wanted: 1 is what suits every one.
	to, err := jetstream.Open(ctx, nc, jetstream.Options{Replicas: 1, Logger: svc.logger})
	if err != nil {
		nc.Close()
		return transferred{}, err
	}
	defer to.Close()
	t := &transfer{from: from, to: to, tell: tell}
	err = t.run(ctx)
	return t.done, err
}
