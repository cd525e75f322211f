package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"weir/internal/build"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			b := build.This()
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(b)
			}
			fmt.Fprintf(c.OutOrStdout(), "weir %s (commit %s, built %s)\n", b.Version, b.Commit, b.Built)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
