package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir"
	"weir/internal/admin"
	"weir/internal/settings"
)

func projectCommand() *cobra.Command {
	var data string
	var asJSON bool
	ls := &cobra.Command{
		Use: "ls", Short: "List the projects", Args: args(), Example: "  weir project ls",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []weir.Project
			if err := admin.Ask(c.Context(), data, "GET", "/projects", nil, &list); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tNAME\tCREATED")
			for _, p := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\n", p.ID, printable(p.Name), p.CreatedAt)
			}
			return w.Flush()
		},
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a project", Args: args("NAME"), Example: "  weir project create shop",
		RunE: func(c *cobra.Command, got []string) error {
			var p weir.Project
			if err := admin.Ask(c.Context(), data, "POST", "/projects", admin.NewProject{Name: got[0]}, &p); err != nil {
				return err
			}
			return printResult(c, asJSON, p, "%s\n", p.ID)
		},
	}
	return operator(group("project", "Manage the projects of the running server", ls, create), &data, &asJSON)
}

// operator adds the flags --data and --json to a command for operators. Such a command uses the data
// directory, or the admin socket in it.
func operator(c *cobra.Command, data *string, asJSON *bool) *cobra.Command {
	settings.DataFlag(c.PersistentFlags(), data)
	c.PersistentFlags().BoolVar(asJSON, "json", false, "print JSON")
	c.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := settings.Environment(c.Flags()); err != nil {
			return misuse{err, c.CommandPath()}
		}
		if *data == "" {
			return misuse{errors.New("--data: empty"), c.CommandPath()}
		}
		return nil
	}
	return c
}

// printResult prints the result of a command: the value as JSON, or a line of text.
func printResult(c *cobra.Command, asJSON bool, value any, line string, a ...any) error {
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(value)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), line, a...)
	return err
}
