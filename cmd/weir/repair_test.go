package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/datadir"
	"weir/internal/disk"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// missingFile creates a data directory and removes one file of its journal. The first file contains
// the record of a stream, the second contains the revocation of a key, and all files contain
// batches.
func missingFile(t *testing.T, number string) (data string, revoked, used access.Secret, stream weir.StreamID) {
	t.Helper()
	data = t.TempDir()
	dir := datadir.Journal(data)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk.OS(dir), journal.Options{SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	a, err := access.Open(ctx, j, access.Options{Limits: access.DefaultLimits})
	must(err)
	p, err := a.CreateProject(ctx, "p")
	must(err)
	k, revoked, err := a.CreateKey(ctx, access.KeySpec{Project: p.ID, Kind: access.Live, Name: "leaked"})
	must(err)
	token, _, err := a.CreateToken(ctx, "backend")
	must(err)
	h, err := hub.Open(ctx, j, hub.Options{})
	must(err)
	o, err := h.Create(ctx, hub.Spec{Project: p.ID, Name: "n", RetentionSeconds: 3600, MaxBytes: 1 << 30, Mode: weir.Raw})
	must(err)
	s, err := h.Stream(o.ID)
	must(err)
	fill := func(n int) {
		t.Helper()
		for range n {
			_, err := s.Publish(ctx, &hub.Publish{Batch: weir.Batch{Events: 1, Payload: bytes.Repeat([]byte("x"), 100_000)}})
			must(err)
		}
	}
	fill(12)
	_, err = a.Revoke(ctx, k.ID)
	must(err)
	_, err = a.RevokeToken(ctx, token.ID)
	must(err)
	fill(10)
	_, used, err = a.CreateKey(ctx, access.KeySpec{Project: p.ID, Kind: access.Live, Name: "new"})
	must(err)
	fill(3)
	must(h.Close())
	must(j.Close())
	must(os.Remove(filepath.Join(dir, number)))
	return data, revoked, used, o.ID
}

// weirly runs a weir command, checks its exit code and returns its output.
func weirly(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(t.Context(), args, &out, &errs); got != code {
		t.Fatalf("%q exits with %d, want %d\n%s\n%s", args, got, code, &out, &errs)
	}
	return out.String(), errs.String()
}

func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in the output:\n%s", p, text)
		}
	}
}

// If a lost record may have revoked a key, the repair revokes the key again and reports this.
func TestRepairRevokesWhatMayBeRevoked(t *testing.T) {
	slowRaced(t)
	data, revoked, used, stream := missingFile(t, "000000000002.seg")
	out, _ := weirly(t, exitFailed, "check", "--data", data)
	holds(t, out, "records may be lost; their content is unknown\n", "may be outdated or deleted: key ",
		"may be outdated or deleted: stream "+string(stream)+"\n")
	out, errs := weirly(t, exitLost, "check", "--data", data, "--repair")
	holds(t, out, "revoked key ", `named "leaked"`, "to replace it, run weir key create\n",
		"revoked management token ", `named "backend"`, "to replace it, run weir token create\n",
		"lost from stream "+string(stream)+": ", "no damage found\n")
	if strings.Contains(out, "nothing is lost\n") || strings.Contains(out, `named "new"`) {
		t.Errorf("the output says that nothing is lost, or names a key that was not revoked:\n%s", out)
	}
	if errs != "weir: a server can use the directory again, but some losses could not be identified: see above\n" {
		t.Errorf("stderr: %q", errs)
	}
	j, err := journal.Open(disk.OS(datadir.Journal(data)), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	a, err := access.Open(t.Context(), j, access.Options{Limits: access.DefaultLimits})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Authenticate([]string{"Bearer " + revoked.Reveal()}); err == nil {
		t.Error("the revoked key is accepted again")
	}
	if _, err := a.Authenticate([]string{"Bearer " + used.Reveal()}); err != nil {
		t.Errorf("the key that was not revoked is refused: %v", err)
	}
}

// If the record of a stream was in a missing file, the repair sets the stream's batches aside and
// does not claim that nothing is lost.
func TestRepairSetsStreamsAside(t *testing.T) {
	slowRaced(t)
	data, _, _, _ := missingFile(t, "000000000001.seg")
	out, errs := weirly(t, exitLost, "check", "--data", data, "--repair", "--json")
	var r struct {
		Directory string
		Aside     []string
		Before    struct{ Orphans, May_be_lost int }
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Before.Orphans < 10 || r.Before.May_be_lost == 0 || len(r.Aside) < 2 {
		t.Errorf("the repair reports %+v, want at least 10 orphans, possible losses, and 2 files set aside", r)
	}
	for _, name := range r.Aside {
		if _, err := os.Stat(filepath.Join(r.Directory, name)); err != nil {
			t.Error(err)
		}
	}
	holds(t, errs, "some losses could not be identified")
	if out, _ := weirly(t, exitDone, "check", "--data", data); !strings.Contains(out, "no damage found\n") {
		t.Errorf("after the repair, weir check does not say that there is no damage:\n%s", out)
	}
}
