package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/internal/admin"
)

func nodeCommand() *cobra.Command {
	var data string
	var asJSON bool
	ls := &cobra.Command{
		Use: "ls", Short: "List the nodes of the cluster", Args: args(), Example: "  weir node ls --data /var/lib/weir-cluster",
		Long: `List the nodes that share the store. --data names the data directory of a running node on this machine, and the
command asks that node. The command prints for each node: the state, by how much the clock is ahead of the median of
all nodes, the version, and the free space on the disk of the data directory. A node that is not connected stays in the
list for an hour, with the state "missing".`,
		RunE: func(c *cobra.Command, _ []string) error {
			var all admin.Nodes
			if err := admin.Ask(c.Context(), data, "GET", "/nodes", nil, &all); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(all)
			}
			return printNodes(c, all)
		},
	}
	return operator(group("node", "Show the nodes of a cluster", ls), &data, &asJSON)
}

func printNodes(c *cobra.Command, all admin.Nodes) error {
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tSTATE\tCLOCK\tVERSION\tFREE\tHEARD")
	for _, n := range all.Nodes {
		heard := fmt.Sprintf("%.0fs ago", n.Silent)
		if n.This {
			heard = "this node"
		}
		clock := fmt.Sprintf("%+.3fs", n.ClockAhead)
		if n.State == "missing" {
			clock = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s of %s\t%s\n", n.Name, n.State, clock, n.Version, size(n.Free), size(n.Size), heard)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%d of %d nodes are connected\n", all.Connected, all.Expected)
	for _, n := range all.Nodes {
		if n.Reason != "" {
			fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", n.Name, n.Reason)
		}
	}
	return nil
}
