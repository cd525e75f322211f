package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weir"
	"weir/client"
	"weir/internal/build"
	"weir/internal/settings"
)

// remote holds the connection flags of the commands that talk to a service over HTTP. These
// commands have no special access: they use the API like any other client.
type remote struct {
	url   string
	key   string
	ca    string
	http1 bool
	json  bool
	began bool // the command has had an effect or printed something, so it must not start again
}

const defaultURL = "http://127.0.0.1:8080"

// commandRetry is how long a command retries a single call without a message. It is short, because a
// person waits for the result. Tests make it shorter.
var commandRetry = 3 * time.Second

// flags adds the flags of a remote to a command and its subcommands. Flags that the user did not
// give are set from the environment before the command runs.
func (r *remote) flags(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&r.url, "url", defaultURL, "`URL` of the service; can also be set as WEIR_URL")
	f.StringVar(&r.key, "key", "", "API `key`; prefer WEIR_KEY, because other users of the machine can see arguments")
	f.StringVar(&r.ca, "cacert", "", "`file` holding the CA certificate to trust, such as tls/ca.pem in the data directory of the service")
	f.BoolVar(&r.http1, "http1", false, "use HTTP/1.1 for http URLs from the start; without it, the command tries cleartext HTTP/2 first")
	f.BoolVar(&r.json, "json", false, "print JSON")
	c.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := settings.Environment(c.Flags()); err != nil {
			return misuse{err, c.CommandPath()}
		}
		return nil
	}
	return c
}

// client creates the client of the service. An invalid flag is reported as wrong usage.
func (r *remote) client(c *cobra.Command) (*client.Client, error) {
	r.url = settings.WithScheme(r.url)
	o := client.Options{URL: r.url, Key: client.Key(r.key), HTTP1: r.http1, UserAgent: "weir/" + build.This().Version, Retry: commandRetry}
	var err error
	if o.TLS, err = trusting(r.ca); err != nil {
		return nil, misuse{err, c.CommandPath()}
	}
	made, err := client.New(o)
	if err != nil {
		return nil, misuse{fmt.Errorf("--url or --key: %w", err), c.CommandPath()}
	}
	return made, nil
}

// trusting returns a configuration that trusts only the CA certificates in a file. If the name of the
// file is empty, it returns nil, which means the system's CA certificates.
func trusting(ca string) (*tls.Config, error) {
	if ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("--cacert: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--cacert: no certificate in %s", ca)
	}
	return &tls.Config{RootCAs: roots}, nil
}

// maxTries is how often run calls its function if the rate limit refuses each call.
const maxTries = 5

// run creates a client and calls the function do with it. If no service answers, the error names
// the URL. If the rate limit refuses a request, run waits as long as the service says, and calls
// the function again, unless the function has set the field began.
func (r *remote) run(c *cobra.Command, do func(ctx context.Context, cl *client.Client) error) error {
	cl, err := r.client(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	for tries := 1; ; tries++ {
		err := do(c.Context(), cl)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Code != weir.RateLimited || e.RetryAfter == 0 || r.began || tries == maxTries {
			return r.explain(err)
		}
		terminalOf(c.ErrOrStderr()).sayLimited(e.RetryAfter)
		select {
		case <-time.After(e.RetryAfter):
		case <-c.Context().Done():
			return err
		}
	}
}

// trustHint adds a hint to a certificate error: the flag that makes the command trust the
// certificate.
func trustHint(err error, ca string) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && ca == "" {
		return fmt.Errorf("%w; if the service has its own certificate authority, set --cacert to its file tls/ca.pem", err)
	}
	return err
}

func (r *remote) explain(err error) error {
	err = trustHint(err, r.ca)
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("no service answers at %s; set --url or WEIR_URL: %w", r.url, err)
	}
	if client.CodeOf(err) == weir.MissingAPIKey {
		return fmt.Errorf("%w; set --key or WEIR_KEY", err)
	}
	return err
}

// streamID parses the argument that names a stream.
func streamID(c *cobra.Command, s string) (weir.StreamID, error) {
	id, err := weir.ParseStreamID(s)
	if err != nil {
		return "", misuse{fmt.Errorf("STREAM %q: %w", s, err), c.CommandPath()}
	}
	return id, nil
}

// completeStream returns the ids of all streams of the service, for shell completion. A shell shows
// the name of each stream next to its id.
func (r *remote) completeStream(c *cobra.Command, got []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(got) > 0 || settings.Environment(c.Flags()) != nil {
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
		ids = append(ids, cobra.CompletionWithDesc(printable(string(s.ID)), printable(s.Name)))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
