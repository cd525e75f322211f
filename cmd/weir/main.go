// Command weir is the Weir server and its command-line client.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/access"
	"weir/internal/settings"
)

// The exit codes of every command.
const (
	exitDone    = 0
	exitFailed  = 1 // the server refused the request, or the command failed
	exitMisused = 2 // wrong usage
	exitLost    = 3 // the data directory was repaired, but data is lost or may be lost
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the whole program. Both main and the tests call it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := program(stdout, stderr)
	root.SetArgs(args)
	var unknown error // the error for a help flag after the name of an unknown command
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, got []string) {
		if names := c.Flags().Args(); len(names) > 0 && c.HasSubCommands() {
			unknown = noCommand(c, names[0])
			return
		}
		help(c, got)
	})
	err := cmp.Or(root.ExecuteContext(ctx), unknown)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, "weir:", access.Redacted(err.Error())) // masks an API key that the user may have typed in the wrong place
	var wrong misuse
	if errors.As(err, &wrong) {
		fmt.Fprintf(stderr, "see '%s --help'\n", wrong.command)
		return exitMisused
	}
	if errors.As(err, new(loss)) {
		return exitLost
	}
	return exitFailed
}

// program builds the tree of commands.
func program(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Append-only streams of batches over plain HTTP",
		Long:          "Weir stores append-only streams of batches. Publishers send numbered batches over HTTP,\nand subscribers receive them over server-sent events.",
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs, // without this setting, cobra itself would refuse an unknown command, with another exit code
		RunE: func(c *cobra.Command, got []string) error {
			if len(got) > 0 {
				return noCommand(c, got[0])
			}
			return c.Help()
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(serveCommand(), configCommand(), projectCommand(), keyCommand(), tokenCommand(), nodeCommand(), versionCommand())
	root.AddCommand(backupCommand(), restoreCommand(), checkCommand(), migrateCommand(), healthCommand())
	root.AddCommand(streamCommand(), publishCommand(), readCommand(), tailCommand(), benchCommand(), manCommand())
	root.SetHelpCommand(helpCommand())
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return misuse{settings.FlagError(c.Flags(), err), c.CommandPath()}
	})
	return root
}

// misuse is the error for wrong usage of a command.
type misuse struct {
	error
	command string
}

func (m misuse) Unwrap() error { return m.error }

// args checks the number of arguments. The error names the argument that is missing or unexpected.
func args(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, got []string) error {
		switch {
		case len(got) < len(names):
			return misuse{fmt.Errorf("missing argument %s", names[len(got)]), c.CommandPath()}
		case len(got) > len(names):
			return misuse{fmt.Errorf("unexpected argument %q", got[len(names)]), c.CommandPath()}
		}
		return nil
	}
}

// atLeast checks that there is at least one argument.
func atLeast(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, got []string) error {
		if len(got) == 0 {
			return misuse{fmt.Errorf("missing argument %s", name), c.CommandPath()}
		}
		return nil
	}
}

// group returns a command that only has subcommands and does nothing itself.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, got []string) error {
		if len(got) > 0 {
			return noCommand(c, got[0])
		}
		return misuse{errors.New("missing subcommand"), c.CommandPath()}
	}}
	c.AddCommand(commands...)
	return c
}

// noCommand reports an unknown command, and suggests the commands whose names are similar.
func noCommand(c *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", c.CommandPath()+" "+name)
	c.SuggestionsMinimumDistance = 2 // the largest number of letters in which a suggestion may differ
	if similar := c.SuggestionsFor(name); len(similar) > 0 {
		err = fmt.Errorf(`%w; did you mean "%s"?`, err, strings.Join(similar, `" or "`))
	}
	return misuse{err, c.CommandPath()}
}

// helpCommand returns cobra's help command, except that an unknown command counts as wrong usage.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(c *cobra.Command, got []string) error {
			about, rest, err := c.Root().Find(got)
			if err != nil {
				return misuse{err, c.Root().CommandPath()}
			}
			if len(rest) > 0 {
				return noCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
