package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/internal/access"
	"weir/internal/admin"
	"weir/internal/settings"
)

// The functions below are for shell completion. They offer the names and ids of the things that the
// running server has. If no server is running, they offer nothing.

// completer is a function of cobra that completes an argument or the value of a flag.
type completer func(c *cobra.Command, got []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeFrom returns a completer that asks the server of the data directory for a list. For each
// element it calls the function offer, which returns a completion, and whether to offer it. Unless
// isFlag is true, only the first argument of the command is completed.
func completeFrom[T any](data *string, path string, isFlag bool, offer func(T) (cobra.Completion, bool)) completer {
	return func(c *cobra.Command, got []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const nothingElse = cobra.ShellCompDirectiveNoFileComp
		if !isFlag && len(got) > 0 || settings.Environment(c.Flags()) != nil {
			return nil, nothingElse
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var list []T
		if admin.Ask(ctx, *data, "GET", path, nil, &list) != nil {
			return nil, nothingElse
		}
		var all []cobra.Completion
		for _, element := range list {
			if o, ok := offer(element); ok && len(all) < 1000 {
				all = append(all, o)
			}
		}
		return all, nothingElse
	}
}

// completeProject completes the flag --project.
func completeProject(c *cobra.Command, data *string) {
	f := completeFrom(data, "/projects", true, func(p weir.Project) (cobra.Completion, bool) {
		return p.Name, printable(p.Name) == p.Name
	})
	if err := c.RegisterFlagCompletionFunc("project", f); err != nil {
		panic(err) // a bug in this program: the flag does not exist
	}
}

// completeKey completes the id of a key that is not revoked.
func completeKey(data *string) completer {
	return completeFrom(data, "/keys", false, func(k access.Key) (cobra.Completion, bool) {
		return cobra.CompletionWithDesc(k.ID, k.Masked+" "+printable(k.Name)), k.RevokedAt == nil
	})
}

// completeToken completes the id of a management token that is not revoked.
func completeToken(data *string) completer {
	return completeFrom(data, "/tokens", false, func(t access.Token) (cobra.Completion, bool) {
		return cobra.CompletionWithDesc(t.ID, t.Masked+" "+printable(t.Name)), t.RevokedAt == nil
	})
}

// completeSettings completes the settings of a server that have a few fixed values.
func completeSettings(c *cobra.Command) {
	complete(c, "log-level", "debug", "info", "warn", "error")
	complete(c, "log-format", "text", "json")
	complete(c, "engine", settings.Journal, settings.NATS)
}

// projectNames returns the names of all projects by id.
func projectNames(ctx context.Context, data string) (map[weir.ProjectID]string, error) {
	var list []weir.Project
	if err := admin.Ask(ctx, data, "GET", "/projects", nil, &list); err != nil {
		return nil, err
	}
	names := map[weir.ProjectID]string{}
	for _, p := range list {
		names[p.ID] = p.Name
	}
	return names, nil
}
