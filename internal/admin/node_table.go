package admin

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteNodes writes a table of the nodes for a person to read. The function size formats a number
// of bytes.
func (n *Nodes) WriteNodes(out io.Writer, size func(int64) string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tSTATE\tCLOCK\tVERSION\tFREE\tLEADS\tCOPIES\tHEARD")
	for _, node := range n.Nodes {
		heard := fmt.Sprintf("%.0fs ago", node.Silent)
		if node.This {
			heard = "this node"
		}
		clock := fmt.Sprintf("%+.3fs", node.ClockAhead)
		if node.State == "missing" {
			clock = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s of %s\t%d\t%d\t%s\n",
			node.Name, node.State, clock, node.Version, size(node.Free), size(node.Size), node.Leads, node.Copies, heard)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d nodes are connected\n", n.Connected, n.Expected)
	for _, node := range n.Nodes {
		if node.Reason != "" {
			fmt.Fprintf(out, "%s: %s\n", node.Name, node.Reason)
		}
	}
	n.writeFaults(out)
	return nil
}

// WriteShards writes a table of the shards for a person to read. It has a line for each copy of a
// shard.
func (n *Nodes) WriteShards(out io.Writer, size func(int64) string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tNODE\tSTATE\tLAG\tMESSAGES\tSIZE")
	for _, s := range n.Shards {
		for _, r := range s.Replicas {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", s.Name, r.Node, r.State, r.Lag, s.Messages, size(int64(s.Bytes)))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	n.writeFaults(out)
	return nil
}

// writeFaults writes a line for each shard that accepts no writes.
func (n *Nodes) writeFaults(out io.Writer) {
	for _, s := range n.Shards {
		name := "shard " + s.Name
		if s.Name == DocumentsShard {
			name = "the shard of documents"
		}
		if s.Fault != "" {
			fmt.Fprintf(out, "%s accepts no writes: %s\n", name, s.Fault)
		}
	}
}
