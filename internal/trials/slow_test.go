package trials

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"

	core "weir"
	"weir/client"
	"weir/internal/faultnet"
)

// command runs weir with the key of the trials against a URL. It fails the test if the command does
// not end within two minutes.
func command(t *testing.T, url string, in []byte, args ...string) (out, errs string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program(t), args...)
	c.Env = append(c.Environ(), "WEIR_URL="+url, "WEIR_KEY="+liveKey)
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(in), &stdout, &stderr
	err = c.Run()
	if ctx.Err() != nil {
		t.Fatalf("weir %q did not end: %s", args, &stderr)
	}
	return stdout.String(), stderr.String(), err
}

// serveStream starts a server with a stream. It makes the test run in parallel with others.
func serveStream(t *testing.T, spec client.NewStream) (*server, *client.Client, core.Stream) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test builds and runs the server")
	}
	t.Parallel()
	s := serve(t, t.TempDir())
	c := newGoClient(t, client.Options{URL: s.url, Key: liveKey})
	stream, err := c.CreateStream(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s, c, stream
}

// weir publish --raw works over a link that is slow but loses nothing. Each batch takes longer than
// the default gap grace of 2 s and longer than the timeout of an HTTP/2 ping. The batches are sent
// once and stored without a gap.
func TestPublishRawOverASlowLink(t *testing.T) {
	s, c, stream := serveStream(t, client.NewStream{Name: "slow", Mode: core.Raw})
	p, err := faultnet.Start(faultnet.Options{Backend: host(t, s.url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.Set(faultnet.Conditions{Rate: faultnet.Rate40kB})
	in := make([]byte, 3*256<<10)
	for i := range in {
		in[i] = byte(i >> 10)
	}
	// --seq makes all batches 256 KiB, the largest that the command makes. Each takes 6.5 s.
	_, errs, err := command(t, "http://"+p.Address(), in, "publish", string(stream.ID), "--raw", "--seq", "1")
	if err != nil || errs != "" {
		t.Fatalf("weir publish: %v: %s", err, errs)
	}
	var got []byte
	until := core.Seq(3)
	for b, err := range c.Subscriber(stream.ID, client.SubscriberOptions{From: client.Oldest, Until: &until}).Batches(t.Context()) {
		if err != nil || b.Gap != nil {
			t.Fatalf("read back %+v, %v", b, err)
		}
		got = append(got, b.Data...)
	}
	if !bytes.Equal(got, in) {
		t.Errorf("the %d stored bytes differ from the %d bytes of the input", len(got), len(in))
	}
	if sent := p.Sent(); sent > int64(len(in)*5/4) {
		t.Errorf("sent %d bytes for an input of %d bytes, want at most a quarter more", sent, len(in))
	}
}

// weir tail --follow=false ends on a stream from which retention has evicted all batches. The
// shortest retention is a minute, so this test takes a minute.
func TestTailOfAnEmptiedStream(t *testing.T) {
	s, c, stream := serveStream(t, client.NewStream{Name: "emptied", RetentionSeconds: core.MinRetention})
	for range 3 {
		if _, err := c.Publish(t.Context(), stream.ID, client.Events(1)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		now, err := c.Stream(ctx, stream.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.BytesStored == 0 {
			break
		}
		wait(ctx, 500*time.Millisecond)
	}
	for _, cursor := range []string{"0", "1", "3"} {
		if out, errs, err := command(t, s.url, nil, "tail", string(stream.ID), "--cursor", cursor, "--follow=false"); err != nil || out != "" {
			t.Errorf("--cursor %s: %v: %q %s", cursor, err, out, errs)
		}
	}
}
