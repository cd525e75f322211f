package manual

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CommandsOf returns the help of every command below root, for the command reference.
func CommandsOf(root *cobra.Command) []Command {
	var all []Command
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.HasSubCommands() && c.Name() != "completion" {
			for _, sub := range c.Commands() {
				visit(sub)
			}
			return
		}
		if c.Hidden || c.Name() == "help" {
			return
		}
		m := Command{Use: c.CommandPath(), Short: c.Short, Example: unindented(c.Example)}
		if c.Long != c.Short {
			m.Long = c.Long
		}
		add := func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			value, usage := pflag.UnquoteUsage(f)
			m.Flags = append(m.Flags, Flag{Name: f.Name, Value: value, Default: strings.Trim(f.DefValue, "[]"), Usage: usage})
		}
		c.NonInheritedFlags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
		all = append(all, m)
	}
	visit(root)
	return all
}

// unindented removes the two spaces before the lines of an example.
func unindented(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
