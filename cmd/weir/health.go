package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/settings"
)

func healthCommand() *cobra.Command {
	var address, ca string
	var timeout time.Duration
	var asJSON bool
	c := &cobra.Command{
		Use: "health", Short: "Check whether a server accepts reads and writes", Args: args(),
		Long: `Check whether a server accepts reads and writes. The exit code is 0 if it does, and 1 if it does not or if it
cannot be reached. Use this command as the health check of a container.`,
		Example: "  weir health\n  weir health --url https://127.0.0.1:8443 --cacert ./weir-data/tls/ca.pem",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := settings.Environment(c.Flags()); err != nil {
				return misuse{err, c.CommandPath()}
			}
			if listens := os.Getenv("WEIR_HTTP"); listens != "" && !c.Flags().Changed("url") {
				if listens == "off" {
					return misuse{errors.New("WEIR_HTTP is off; set --url or WEIR_URL"), c.CommandPath()}
				}
				address = settings.LocalURL("http", listens)
			}
			address = settings.WithScheme(address)
			u, err := url.Parse(address)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return misuse{fmt.Errorf("--url %q: not an http or https address", address), c.CommandPath()}
			}
			if timeout <= 0 {
				return misuse{fmt.Errorf("--timeout %v: must be above 0", timeout), c.CommandPath()}
			}
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			return health(ctx, c.OutOrStdout(), strings.TrimRight(address, "/"), ca, asJSON)
		},
	}
	c.Flags().StringVar(&address, "url", "http://127.0.0.1:8080", "`URL` of the server (default: WEIR_URL, then the address in WEIR_HTTP, then http://127.0.0.1:8080)")
	c.Flags().Lookup("url").DefValue = "" // without this, help would add a default, which the text above already names
	c.Flags().StringVar(&ca, "cacert", "", "`file` holding the CA certificate to trust (default: the system's CA certificates)")
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "time to wait for the response")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func health(ctx context.Context, w io.Writer, address, ca string, asJSON bool) error {
	trusted, err := trusting(ca)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: trusted}
	r, err := http.NewRequestWithContext(ctx, "GET", address+"/v1/health", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return fmt.Errorf("no response from the server: %w", trustHint(err, ca))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	var answer struct {
		Status string `json:"status"`
		Uptime int64  `json:"uptime_s"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status == "" {
		return fmt.Errorf("%s answered %s, but is not a Weir server", address, resp.Status)
	}
	if asJSON {
		fmt.Fprintf(w, "%s\n", strings.TrimSpace(string(body)))
	} else {
		fmt.Fprintf(w, "%s, up for %v\n", answer.Status, time.Duration(answer.Uptime)*time.Second)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New("the server does not accept reads and writes")
	}
	return nil
}
