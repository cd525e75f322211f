package main

import (
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/api"
	"weir/internal/manual"
)

// withManual serves the manual beside the interface. What it says about errors and commands comes from where they are.
func withManual(next http.Handler) http.Handler {
	o := manual.Options{Commands: commandsForManual()}
	for _, f := range api.Faults() {
		o.Faults = append(o.Faults, manual.Fault{
			Code: string(f.Code), Status: f.Status, Type: f.Type, RetryAfter: f.RetryAfter, Means: f.Means, Todo: f.Todo,
		})
	}
	return manual.New(o, next)
}

// commandsForManual is the help of every command.
func commandsForManual() []manual.Command {
	root := program(io.Discard, io.Discard)
	root.InitDefaultCompletionCmd()
	var all []manual.Command
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
		m := manual.Command{Use: c.CommandPath(), Short: c.Short, Example: unindented(c.Example)}
		if c.Long != c.Short {
			m.Long = c.Long
		}
		add := func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			value, usage := pflag.UnquoteUsage(f)
			m.Flags = append(m.Flags, manual.Flag{Name: f.Name, Value: value, Default: strings.Trim(f.DefValue, "[]"), Usage: usage})
		}
		c.NonInheritedFlags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
		all = append(all, m)
	}
	visit(root)
	return all
}

// unindented takes the two spaces away that help texts have before examples.
func unindented(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
