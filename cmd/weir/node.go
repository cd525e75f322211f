package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"weir/internal/admin"
)

func nodeCommand() *cobra.Command {
	var data string
	var asJSON, asShards, force bool
	ls := &cobra.Command{
		Use: "ls", Short: "List the nodes of the cluster", Args: args(), Example: "  weir node ls --data /var/lib/weir-cluster",
		Long: `List the nodes that share the store. --data names the data directory of a running node on this machine, and the
command asks that node. For each node the command prints its state, how far its clock is ahead of the median of all
nodes, its version, the free space on the disk of its data directory, how many shards it leads, and how many it has a
copy of. A node that is not connected stays in the list for an hour, with the state "missing".

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
	work := func(c *cobra.Command, path string, body any) error {
		return admin.FollowWork(c.Context(), data, "/nodes/"+path, body, asJSON, c.OutOrStdout())
	}
	rm := &cobra.Command{
		Use: "rm NAME", Short: "Remove a node from the cluster for good", Args: args("NAME"), Example: "  weir node rm weir-abcdefghijkl --data /var/lib/weir-cluster",
		Long: "Remove a node for good. The copies of shards on it move to other nodes while all nodes serve requests. Then the node\n" +
			"stops, and its data directory cannot join the cluster again. --data must name the data directory of a running node\non this machine, other than the one to remove. If the command is interrupted, run it again. --force is for a dead node:\nits copies are given up, and other nodes get new ones.",
		RunE: func(c *cobra.Command, got []string) error {
			return work(c, "remove", admin.RemoveNode{Name: got[0], Force: force})
		},
	}
	rm.Flags().BoolVar(&force, "force", false, "remove a node that is not connected, and give up its copies")
	balance := &cobra.Command{
		Use: "balance", Short: "Spread the shards over all nodes", Args: args(), Example: "  weir node balance --data /var/lib/weir-cluster",
		Long: "Spread the copies of the shards, and their leaders, over all nodes, for example after nodes were added. All nodes serve\nrequests meanwhile. If the command is interrupted, run it again.",
		RunE: func(c *cobra.Command, _ []string) error { return work(c, "balance", struct{}{}) },
	}
	shards := &cobra.Command{
		Use: "shards N", Short: "Set a higher number of shards for new streams", Args: args("N"), Example: "  weir node shards 8 --data /var/lib/weir-cluster",
		Long: "Distribute new streams over N shards. Existing streams stay in their shards.",
		RunE: func(c *cobra.Command, got []string) error {
			n, err := strconv.Atoi(got[0])
			if err != nil {
				return misuse{fmt.Errorf("%q is not a number", got[0]), c.CommandPath()}
			}
			return work(c, "shards", admin.GrowShards{Shards: n})
		},
	}
	return operator(group("node", "Show and change the nodes of a cluster", ls, rm, balance, shards), &data, &asJSON)
}
