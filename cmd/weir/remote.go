package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/client"
)

// remote is what the commands share that talk to a service over HTTP, as any client does.
type remote struct {
	url   string
	key   string
	ca    string
	http1 bool
	json  bool
}

const defaultURL = "http://127.0.0.1:8080"

// flags adds the flags of a remote to a command and those below it, and sets them from the environment before it runs.
func (r *remote) flags(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&r.url, "url", defaultURL, "`address` of the service, or WEIR_URL")
	f.StringVar(&r.key, "key", "", "the `key` to use; WEIR_KEY is better, because everybody on a machine can see arguments")
	f.StringVar(&r.ca, "cacert", "", "`file` with the authority of the service's certificate, such as tls/ca.pem in its data directory")
	f.BoolVar(&r.http1, "http1", false, "speak HTTP/1.1 to a http address, for proxies that know no cleartext HTTP/2")
	f.BoolVar(&r.json, "json", false, "print JSON")
	c.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := environment(c); err != nil {
			return misuse{err, c.CommandPath()}
		}
		return nil
	}
	return c
}

// client makes the client. What is wrong with its flags is wrong usage.
func (r *remote) client(c *cobra.Command) (*client.Client, error) {
	o := client.Options{URL: r.url, Key: r.key, HTTP1: r.http1, UserAgent: "weir/" + thisBuild().Version}
	if r.ca != "" {
		pem, err := os.ReadFile(r.ca)
		if err != nil {
			return nil, misuse{fmt.Errorf("--cacert: %w", err), c.CommandPath()}
		}
		o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, misuse{fmt.Errorf("--cacert: there is no certificate in %s", r.ca), c.CommandPath()}
		}
	}
	made, err := client.New(o)
	if err != nil {
		return nil, misuse{fmt.Errorf("--url or --key: %w", err), c.CommandPath()}
	}
	return made, nil
}

// run calls do with a client, and says where the service was looked for when there was none.
func (r *remote) run(c *cobra.Command, do func(ctx context.Context, cl *client.Client) error) error {
	cl, err := r.client(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	return r.explain(do(c.Context(), cl))
}

func (r *remote) explain(err error) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("no service answers at %s (--url or WEIR_URL names it): %w", r.url, err)
	}
	// net/http has no error value for it. Which of the two it is depends on who of its goroutines is first.
	if err != nil && (strings.Contains(err.Error(), "http2: frame too large") || strings.Contains(err.Error(), "http2: client conn could not be established")) {
		return fmt.Errorf("%s speaks no HTTP/2 without TLS (https, or --http1?): %w", r.url, err)
	}
	if client.CodeOf(err) == weir.MissingAPIKey {
		return fmt.Errorf("%w; --key or WEIR_KEY names it", err)
	}
	return err
}

// streamID reads the argument that names a stream.
func streamID(c *cobra.Command, s string) (weir.StreamID, error) {
	id, err := weir.ParseStreamID(s)
	if err != nil {
		return "", misuse{fmt.Errorf("STREAM %q: %w", s, err), c.CommandPath()}
	}
	return id, nil
}

// completeStream completes the id of a stream by asking the service, if there is one. Shells show the names beside the ids.
func (r *remote) completeStream(c *cobra.Command, got []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(got) > 0 || environment(c) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cl, err := r.client(c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var ids []cobra.Completion
	for s, err := range cl.Streams(ctx) {
		if err != nil || len(ids) == 1000 {
			break
		}
		ids = append(ids, cobra.CompletionWithDesc(string(s.ID), s.Name))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
