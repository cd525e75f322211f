package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"weir/internal/admin"
)

func migrateCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{
		Use: "migrate DIR", Short: "Copy the data of a single server to a cluster", Args: args("DIR"),
		Long: `Copy the data of a single server to an unused cluster: projects, keys, the audit log, the dashboard's password, and
all streams with the sequence numbers and times of their batches.

DIR is the data directory of the old server, which must not be running. The directory is not changed. --data names the
data directory of a running node of the cluster, on this machine. The project, key and stream that the cluster created
at its first start are deleted. The command refuses a cluster that already has batches in any stream. No key is valid
during the migration, because keys are copied last. If the migration is interrupted, run the command again.`,
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

// migrate asks a running node to copy the data, and shows the progress.
func migrate(c *cobra.Command, data, dir string, asJSON bool) error {
	b, err := json.Marshal(admin.NewMigration{From: dir})
	if err != nil {
		return err
	}
	resp, err := admin.Do(c.Context(), data, "POST", "/migrate", bytes.NewBuffer(b))
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
		if asJSON {
			return json.NewEncoder(c.OutOrStdout()).Encode(m)
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: %d streams, %d batches, %s in %.1fs\n", dir, m.Streams, m.Batches, size(m.Bytes), m.Seconds)
		return nil
	}
}
