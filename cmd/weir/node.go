package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"weir/internal/admin"
)

func nodeCommand() *cobra.Command {
	var data string
	var asJSON, asShards bool
	ls := &cobra.Command{
		Use: "ls", Short: "List the nodes of the cluster", Args: args(), Example: "  weir node ls --data /var/lib/weir-cluster",
		Long: `List the nodes that share the store. --data names the data directory of a running node on this machine, and the
command asks that node. The command prints for each node: the state, by how much the clock is ahead of the median of
all nodes, the version, the free space on the disk of the data directory, how many shards it leads, and of how many it
has a copy. A node that is not connected stays in the list for an hour, with the state "missing".

The store is divided into shards, each with copies on several nodes. One more shard holds the documents: the records of
streams, projects and keys. --shards lists the copies of every shard: the node, the state (leads, current, behind or
offline), and how many messages the copy lacks.`,
		RunE: func(c *cobra.Command, _ []string) error {
			var all admin.Nodes
			if err := admin.Ask(c.Context(), data, "GET", "/nodes", nil, &all); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(all)
			}
			if asShards {
				return all.WriteShards(c.OutOrStdout(), size)
			}
			return all.WriteNodes(c.OutOrStdout(), size)
		},
	}
	ls.Flags().BoolVar(&asShards, "shards", false, "list the shards and their copies instead of the nodes")
	return operator(group("node", "Show the nodes of a cluster", ls), &data, &asJSON)
}
