package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"weir/client"
	"weir/internal/service/servicetest"
)

// commands starts a service with a client, and returns a function that runs a command against it.
func commands(t *testing.T, o servicetest.Options) (*client.Client, func(args ...string) (code int, out, errs string)) {
	t.Helper()
	svc := servicetest.Start(t, o)
	c, err := client.New(client.Options{URL: svc.HTTP, Key: client.Key(svc.Key)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	t.Setenv("WEIR_URL", svc.HTTP)
	t.Setenv("WEIR_KEY", svc.Key)
	return c, func(args ...string) (int, string, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		code := run(ctx, args, &out, &errs)
		if ctx.Err() != nil {
			t.Fatalf("weir %q did not end\n%s", args, &errs)
		}
		return code, out.String(), errs.String()
	}
}

// weir publish says when it will retry after a rate limit.
func TestPublishRateLimited(t *testing.T) {
	c, run := commands(t, servicetest.Options{Args: []string{"--rate-live", "3"}})
	s, err := c.CreateStream(t.Context(), client.NewStream{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(lines, []byte("1\n2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(lines)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	stdin := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = stdin }()
	code, _, errs := run("publish", string(s.ID), "--seq", "1", "--give-up", "1s")
	if code != exitFailed || !regexp.MustCompile(`(?m)^weir: rate limited; retrying in [1-6]?\d s$`).MatchString(errs) {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// weir tail says where to resume when it is interrupted.
func TestTailInterrupted(t *testing.T) {
	c, _ := commands(t, servicetest.Options{})
	s, err := c.CreateStream(t.Context(), client.NewStream{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, err := c.Publish(t.Context(), s.ID, client.Events(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, interrupt := context.WithTimeout(t.Context(), 2*time.Minute)
	defer interrupt()
	out, errs := &untilText{want: "1\n2\n3\n", then: interrupt}, &bytes.Buffer{}
	code := run(ctx, []string{"tail", string(s.ID), "--cursor", "0"}, out, errs)
	if code != 0 || out.String() != out.want || errs.String() != "weir: resume with --cursor 3\n" {
		t.Errorf("exit code %d: %q %q", code, out, errs)
	}
}

// untilText is a writer. Once it has received the text in the field want, it calls the function in
// the field then.
type untilText struct {
	bytes.Buffer
	want string
	then func()
}

func (w *untilText) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if w.String() == w.want {
		w.then()
	}
	return n, err
}
