package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/admin"
	"weir/internal/datadir"
)

func migrateCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{
		Use: "migrate DIR", Short: "Copy all data between a single server and a cluster, or between two clusters", Args: args("DIR"),
		Long: `Copy all data between a single server and a cluster, or between two clusters: projects, keys, the audit log, the
dashboard's password, and all streams with the sequence numbers and times of their batches. The source is not changed.
If the migration is interrupted, run the command again.

From a single server to a cluster: DIR is the data directory of the single server, which must not be running. --data
names the data directory of a running node of the cluster, on this machine. The project, key and stream that the cluster
created at its first start are deleted. The command refuses a cluster that has batches in any stream but the demo stream,
unless they are from an interrupted migration. No key is valid during the migration, because keys are copied last.

From a cluster: DIR is the data directory of a running node, on this machine. To copy to a single server, --data names an
empty or missing directory, which becomes its data directory. To copy to another cluster, --data names the data directory
of one of its running nodes. Stop the publishers first: batches that are published later may not be copied.`,
		Example: "  weir migrate /var/lib/weir --data /var/lib/weir-cluster\n  weir migrate /var/lib/weir-cluster --data /var/lib/weir-single",
		RunE: func(c *cobra.Command, got []string) error {
			dir, err := filepath.Abs(got[0])
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if datadir.IsNode(dir) {
				err = leaveCluster(ctx, c, data, dir, asJSON)
			} else {
				err = enterCluster(ctx, c, data, dir, dir, asJSON)
			}
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("migrate %s: interrupted; run the command again", dir)
			}
			return err
		},
	}
	return operator(c, &data, &asJSON)
}

// migrationDir is the directory, in the data directory of a node, where leaveCluster keeps the data
// of another cluster before the node copies it.
const migrationDir = "migration.tmp"

// leaveCluster copies all data of a cluster. The parameter dir is the data directory of one of its
// running nodes. The parameter data is a directory that becomes the data directory of a single
// server, or it is the data directory of a running node of another cluster.
func leaveCluster(ctx context.Context, c *cobra.Command, data, dir string, asJSON bool) error {
	if !admin.Running(data) {
		m, err := copyCluster(ctx, c, data, dir)
		if err != nil {
			return err
		}
		return m.say(c, dir, asJSON)
	}
	if !datadir.IsNode(data) {
		return fmt.Errorf("a single server is using %s; set --data to an empty directory, or to the data directory of a running node of another cluster", data)
	}
	into, err := filepath.Abs(filepath.Join(data, migrationDir))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	defer os.RemoveAll(into)
	if _, err := copyCluster(ctx, c, into, dir); err != nil {
		return err
	}
	return enterCluster(ctx, c, data, into, dir, asJSON)
}

// copyCluster takes a backup of a cluster and restores it into the directory that the parameter
// data names.
func copyCluster(ctx context.Context, c *cobra.Command, data, dir string) (migration, error) {
	start := time.Now()
	source, total, _, err := openBackup(ctx, dir, 0, nil)
	if err != nil {
		return migration{}, fmt.Errorf("migrate %s: %w", dir, err)
	}
	defer source.Close()
	p := newProgress(c.ErrOrStderr(), total)
	defer p.end()
	counted := &counter{progress: p}
	_, report, err := datadir.Restore(ctx, []datadir.Source{{Name: dir, Reader: counted.reader(source)}}, data)
	if err == nil && len(report.Damages) > 0 {
		err = errors.New(datadir.Describe(&report.Damages[0]))
	}
	if err != nil {
		return migration{}, fmt.Errorf("migrate %s: %w", dir, err)
	}
	m := migration{Batches: report.Batches, Bytes: report.Payload, Done: true, Seconds: time.Since(start).Seconds()}
	m.Streams, _, _ = datadir.Counts(report)
	for _, n := range report.Documents {
		m.Documents += n
	}
	return m, nil
}

// migration is the result of a migration.
type migration admin.Migration

func (m migration) say(c *cobra.Command, dir string, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(m)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s: %d streams, %d batches, %s in %.1fs\n", dir, m.Streams, m.Batches, size(m.Bytes), m.Seconds)
	return nil
}

// enterCluster asks a running node of a cluster to copy the data directory of a single server, and
// shows the progress. The parameter from is that directory, and dir the one that the user has named.
func enterCluster(ctx context.Context, c *cobra.Command, data, from, dir string, asJSON bool) error {
	b, err := json.Marshal(admin.NewMigration{From: from})
	if err != nil {
		return err
	}
	resp, err := admin.Do(ctx, data, "POST", "/migrate", bytes.NewBuffer(b))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	p := newProgress(c.ErrOrStderr(), 0)
	defer p.end()
	lines := json.NewDecoder(resp.Body)
	for {
		var m admin.Migration
		if err := lines.Decode(&m); err != nil {
			return fmt.Errorf("the node ended the migration early, see its log: %w", err)
		}
		p.at(m.Bytes)
		if m.Error != "" {
			return fmt.Errorf("migrate %s: %s", dir, m.Error)
		}
		if !m.Done {
			continue
		}
		p.end()
		return migration(m).say(c, dir, asJSON)
	}
}
