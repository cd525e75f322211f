package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/build"
	"weir/internal/manual"
)

// manCommand writes manual pages, for example for Linux packages. The pages have the same texts as
// --help.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write a manual page for every command to a directory", Args: args("DIR"), Hidden: true,
		Example: "  weir man /usr/share/man/man1",
		RunE: func(c *cobra.Command, got []string) error {
			if err := os.MkdirAll(got[0], 0o755); err != nil {
				return err
			}
			return eachCommand(c.Root(), func(c *cobra.Command) error {
				name := strings.ReplaceAll(c.CommandPath(), " ", "-")
				return os.WriteFile(filepath.Join(got[0], name+".1"), []byte(manual.ManPage(c, build.This().Version)), 0o644)
			})
		},
	}
}

// eachCommand calls f with a command and all subcommands that help shows.
func eachCommand(c *cobra.Command, f func(*cobra.Command) error) error {
	if err := f(c); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if err := eachCommand(sub, f); err != nil {
			return err
		}
	}
	return nil
}

// commandsForManual returns the help of every command. The manual shows it as the command
// reference.
func commandsForManual() []manual.Command {
	root := program(io.Discard, io.Discard)
	root.InitDefaultCompletionCmd()
	return manual.CommandsOf(root)
}
