package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir"
	"weir/internal/access"
	"weir/internal/admin"
	"weir/internal/settings"
)

func keyCommand() *cobra.Command {
	var data string
	var asJSON bool
	return operator(group("key", "Manage the keys of the running server",
		listKeys(&data, &asJSON), createKey(&data, &asJSON), revokeKey(&data, &asJSON)), &data, &asJSON)
}

func listKeys(data *string, asJSON *bool) *cobra.Command {
	var project string
	c := &cobra.Command{
		Use: "ls", Short: "List the keys, masked", Args: args(), Example: "  weir key ls --project default",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []access.Key
			if err := admin.Ask(c.Context(), *data, "GET", "/keys?project="+url.QueryEscape(project), nil, &list); err != nil {
				return err
			}
			if *asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			names, err := projectNames(c.Context(), *data)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tPROJECT\tKIND\tKEY\tNAME\tPERMISSIONS\tCREATED\tLAST USED\tREVOKED")
			for _, k := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, printable(cmp.Or(names[k.Project], string(k.Project))), k.Kind, k.Masked, printable(k.Name),
					join(k.Permissions), k.CreatedAt, moment(k.LastUsedAt), revoked(k))
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&project, "project", "", "only keys of the project with this `name`")
	completeProject(c, data)
	return c
}

func createKey(data *string, asJSON *bool) *cobra.Command {
	var spec admin.NewKey
	var kind string
	var permissions, streams []string
	var revokeAfter string
	c := &cobra.Command{
		Use: "create", Short: "Create a key and print it; it is shown only once", Args: args(),
		Example: "  weir key create --project default --kind live\n  weir key create --project default --kind live --permissions read --streams STREAM_ID --name browser",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if spec.Project == "" {
				return misuse{fmt.Errorf("missing --project"), c.CommandPath()}
			}
			spec.Kind = access.Kind(kind)
			if spec.Kind != access.Live && spec.Kind != access.Test {
				return misuse{fmt.Errorf("--kind %q: not live or test", kind), c.CommandPath()}
			}
			for _, p := range permissions {
				if p := access.Permission(p); p != access.Read && p != access.Publish && p != access.Manage {
					return misuse{fmt.Errorf("--permissions %q: not read, publish or manage", p), c.CommandPath()}
				}
				spec.Permissions = append(spec.Permissions, access.Permission(p))
			}
			if spec.RevokeAfter, err = settings.Seconds("--revoke-after", revokeAfter); err != nil || spec.RevokeAfter == 0 && c.Flags().Changed("revoke-after") {
				// A script may pass an empty variable by mistake, which must not make the key valid forever.
				return misuse{cmp.Or(err, fmt.Errorf(`--revoke-after "": not a time such as 1h`)), c.CommandPath()}
			}
			for _, s := range streams {
				spec.Streams = append(spec.Streams, weir.StreamID(s))
			}
			var made admin.MadeKey
			if err := admin.Ask(c.Context(), *data, "POST", "/keys", spec, &made); err != nil {
				return err
			}
			return printResult(c, *asJSON, made, "%s\n", made.Secret)
		},
	}
	f := c.Flags()
	f.StringVar(&spec.Project, "project", "", "`name` of the project")
	f.StringVar(&kind, "kind", "live", "live or test")
	f.StringSliceVar(&permissions, "permissions", nil, "any of read, publish and manage, comma-separated (default: all)")
	f.StringSliceVar(&streams, "streams", nil, "`ids` of the streams that the key may use, comma-separated (default: all streams of the project)")
	f.StringVar(&spec.Name, "name", "", "a `note` on what the key is for")
	completeProject(c, data)
	complete(c, "kind", "live", "test")
	complete(c, "permissions", "read", "publish", "manage")
	f.StringVar(&revokeAfter, "revoke-after", "", "time after which the key revokes itself, 1s to 365d (default: never)")
	return c
}

func revokeKey(data *string, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key; its next request is refused and its subscriptions end", Args: args("ID"),
		Example: "  weir key revoke 4fGh0…  (an ID from weir key ls)", ValidArgsFunction: completeKey(data),
		RunE: func(c *cobra.Command, got []string) error {
			var k access.Key
			if err := admin.Ask(c.Context(), *data, "POST", "/keys/"+url.PathEscape(got[0])+"/revoke", nil, &k); err != nil {
				return err
			}
			return printResult(c, *asJSON, k, "revoked %s at %s\n", k.Masked, moment(k.RevokedAt))
		},
	}
}

func join(list []access.Permission) string {
	var s []string
	for _, p := range list {
		s = append(s, string(p))
	}
	return strings.Join(s, ",")
}

// revoked returns when a key was revoked, or when it will revoke itself.
func revoked(k access.Key) string {
	if k.RevokedAt == nil && k.RevokeAt != nil {
		return "at " + k.RevokeAt.String()
	}
	return moment(k.RevokedAt)
}

func moment(t *weir.Time) string {
	if t == nil {
		return "-"
	}
	return t.String()
}
