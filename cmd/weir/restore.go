package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/datadir"
	"weir/internal/service"
)

func restoreCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Create a data directory from a backup", Args: args("FILE"),
		Long: `Create a data directory from a backup. The directory must be empty or missing. Every checksum of the backup and every
record of the journal is verified before a server can use the directory. If FILE is -, the backup is read from standard
input.`,
		Example: "  weir restore /backups/weir.tar --data /var/lib/weir\n  zstd -dc weir.tar.zst | weir restore - --data /var/lib/weir",
		RunE: func(c *cobra.Command, got []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return restore(ctx, c, got[0], data, asJSON)
		},
	}
	return operator(c, &data, &asJSON)
}

func restore(ctx context.Context, c *cobra.Command, name, data string, asJSON bool) error {
	source, total, err := openSource(c, name)
	if err != nil {
		return err
	}
	defer source.Close()
	start := time.Now()
	p := newProgress(c.ErrOrStderr(), total)
	counted := &counter{r: source, progress: p}
	head, report, err := datadir.Restore(ctx, counted, data)
	p.end()
	if err != nil {
		return fmt.Errorf("restore %s: %w", name, err)
	}
	r := backupResult{
		File: name, Data: data, Taken: head.Taken, Version: head.Version, Files: len(head.Files), Bytes: counted.n,
		Seconds: time.Since(start).Seconds(), Damages: []string{},
	}
	for _, d := range report.Damages {
		r.Damages = append(r.Damages, datadir.Describe(&d))
	}
	line := fmt.Sprintf("%s: %d files, %s in %.1fs, as of %s", data, r.Files, size(r.Bytes), r.Seconds, r.Taken.Format(time.RFC3339))
	return r.say(c, c.OutOrStdout(), asJSON, line,
		"the backup was restored, but some of the data in it is damaged: run weir check --repair --data "+service.Quoted(data))
}

func openSource(c *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(c.InOrStdin()), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
