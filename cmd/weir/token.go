package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"weir/internal/access"
	"weir/internal/admin"
)

func tokenCommand() *cobra.Command {
	var data string
	var asJSON bool
	c := group("token", "Manage the management tokens of the running server", listTokens(&data, &asJSON), createToken(&data, &asJSON), revokeToken(&data, &asJSON))
	c.Long = "A management token lets a program create and list projects, and create, list and revoke keys, over\nHTTP under /manage/v1. It is not a key, and gives no access to streams."
	return operator(c, &data, &asJSON)
}

func listTokens(data *string, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the management tokens, masked", Args: args(), Example: "  weir token ls",
		RunE: func(c *cobra.Command, _ []string) error {
			var list []access.Token
			if err := admin.Ask(c.Context(), *data, "GET", "/tokens", nil, &list); err != nil {
				return err
			}
			if *asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(list)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tTOKEN\tNAME\tCREATED\tLAST USED\tREVOKED")
			for _, t := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Masked, printable(t.Name), t.CreatedAt, moment(t.LastUsedAt), moment(t.RevokedAt))
			}
			return w.Flush()
		},
	}
}

func createToken(data *string, asJSON *bool) *cobra.Command {
	var spec admin.NewToken
	c := &cobra.Command{
		Use: "create", Short: "Create a management token and print it; it is shown only once", Args: args(),
		Example: "  weir token create --name 'backend of the shop'",
		RunE: func(c *cobra.Command, _ []string) error {
			var made admin.MadeToken
			if err := admin.Ask(c.Context(), *data, "POST", "/tokens", spec, &made); err != nil {
				return err
			}
			return printResult(c, *asJSON, made, "%s\n", made.Secret)
		},
	}
	c.Flags().StringVar(&spec.Name, "name", "", "a `note` on what the token is for")
	return c
}

func revokeToken(data *string, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a management token; keys that it created stay valid", Args: args("ID"),
		Example: "  weir token revoke 4fGh0…  (an ID from weir token ls)", ValidArgsFunction: completeToken(data),
		RunE: func(c *cobra.Command, got []string) error {
			var t access.Token
			if err := admin.Ask(c.Context(), *data, "POST", "/tokens/"+url.PathEscape(got[0])+"/revoke", nil, &t); err != nil {
				return err
			}
			return printResult(c, *asJSON, t, "revoked %s at %s\n", t.Masked, moment(t.RevokedAt))
		},
	}
}
