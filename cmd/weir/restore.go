package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
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
		Use: "restore FILE...", Short: "Create a data directory from a backup", Args: atLeast("FILE"),
		Long: `Create a data directory from a backup. The directory must be empty or missing. Every checksum of the backup and every
record of the journal is verified before a server can use the directory. If FILE is -, the backup is read from standard
input.

A backup that was taken with --since needs the earlier backups that it continues. Give that backup and the earlier ones as
arguments, in any order, or give the directory that holds them. The state of the newest backup is restored.`,
		Example: "  weir restore /backups/weir.tar --data /var/lib/weir\n  weir restore /backups/ --data /var/lib/weir\n  zstd -dc weir.tar.zst | weir restore - --data /var/lib/weir",
		RunE: func(c *cobra.Command, got []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return restore(ctx, c, got, data, asJSON)
		},
	}
	return operator(c, &data, &asJSON)
}

func restore(ctx context.Context, c *cobra.Command, names []string, data string, asJSON bool) error {
	name := names[0]
	if len(names) > 1 && slices.Contains(names, "-") {
		return misuse{errors.New("- must be the only FILE: standard input holds one whole backup"), c.CommandPath()}
	}
	chain := &datadir.Chain{Name: name, Sources: []datadir.Source{{Name: name, Reader: c.InOrStdin()}}}
	if len(names) > 1 || name != "-" {
		var err error
		if chain, err = datadir.OpenChain(names); err != nil {
			return fmt.Errorf("restore %s: %w", name, err)
		}
		defer chain.Close()
	}
	start := time.Now()
	p := newProgress(c.ErrOrStderr(), chain.Size)
	counted := &counter{progress: p}
	for i, s := range chain.Sources {
		chain.Sources[i].Reader = counted.reader(s.Reader)
	}
	head, report, err := datadir.Restore(ctx, chain.Sources, data)
	p.end()
	if err != nil {
		return fmt.Errorf("restore %s: %w", chain.Name, err)
	}
	r := backupResult{
		File: chain.Name, Data: data, Taken: head.Taken, Version: head.Version, Files: len(head.Files) + len(head.Earlier), Bytes: counted.n, Earlier: len(head.Earlier),
		Seconds: time.Since(start).Seconds(), Damages: []string{},
	}
	for _, d := range report.Damages {
		r.Damages = append(r.Damages, datadir.Describe(&d))
	}
	line := fmt.Sprintf("%s: %d files, %s in %.1fs, as of %s", data, r.Files, size(r.Bytes), r.Seconds, r.Taken.Format(time.RFC3339))
	return r.say(c, c.OutOrStdout(), asJSON, line,
		"the backup was restored, but some of the data in it is damaged: run weir check --repair --data "+service.Quoted(data))
}
