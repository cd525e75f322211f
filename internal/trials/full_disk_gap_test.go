package trials

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
)

// The disk of a server is full for longer than the grace of a gap. The gap stays open (D4), and
// weir publish waits. When the disk has space again, all batches are stored.
func TestGapsOnAFullDisk(t *testing.T) {
	t.Parallel() // the test mostly waits
	d, data := smallDisk(t)
	if d == nil {
		t.Skip("no small disk can be mounted")
	}
	const grace = 2 * time.Second
	s := serve(t, data, "--https", "off", "--gap-grace", grace.String(), "--rate-live", "0", "--demo=false")
	t.Cleanup(s.kill) // runs before the disk is unmounted
	ctx, c := context.Background(), &caller{s.url, contract.HTTP1()}
	t.Cleanup(c.client.CloseIdleConnections)
	gaps, piped := contract.NewID(), contract.NewID()
	for _, id := range []string{gaps, piped} {
		if out, status, b := c.ask(ctx, "POST", "/v1/streams", `{"name":"full","id":"`+id+`"}`, nil); out != done {
			t.Fatalf("create: %d %s", status, b)
		}
	}
	publish := func(seq int64) int {
		_, status, _ := c.publish(ctx, contract.SeqPath(gaps, seq), "", fmt.Sprintf(`["%d %s"]`, seq, strings.Repeat("x", 4<<10)))
		return status
	}

	if err := d.Fill(); err != nil {
		t.Fatal(err)
	}
	// The server accepts batches until the space that is left in the files of its journal is used
	// up. Every second sequence is missing, so that the last gap is young when the disk is full.
	last, at := int64(-1), time.Now()
	for status := 202; status == 202; {
		if status = publish(last + 2); status == 202 {
			last, at = last+2, time.Now()
		} else if status != 503 {
			t.Fatalf("batch %d on a full disk: %d", last+2, status)
		}
	}
	if time.Since(at) > grace/2 || last < 3 {
		t.Skipf("the machine is too slow: batch %d was stored %v before the disk was full", last, time.Since(at))
	}

	pipe := exec.Command(helperProgram(t), "publish", piped, "--seq", "1", "--give-up", "2m")
	pipe.Env = append(os.Environ(), "WEIR_URL="+s.url, "WEIR_KEY="+liveKey)
	var said bytes.Buffer
	pipe.Stdin, pipe.Stdout, pipe.Stderr = strings.NewReader(strings.Repeat("\"piped\"\n", 100)), &said, &said
	tie(pipe)
	if err := pipe.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- pipe.Wait() }()

	tick := time.NewTicker(grace / 20)
	defer tick.Stop()
	for full := time.Now(); time.Since(full) < 2*grace; <-tick.C {
		if status := publish(last - 1); status != 503 {
			t.Fatalf("the missing batch %d, %v after the disk was full: %d", last-1, time.Since(full), status)
		}
	}
	select {
	case err := <-exited:
		t.Fatalf("weir publish ended while the disk was full: %v\n%s", err, &said)
	default:
	}
	if err := d.Free(); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int64{last - 1, last + 2, last + 1} {
		status := 0
		contract.Eventually(t, healWithin, fmt.Sprintf("batch %d is stored", seq), func() bool { status = publish(seq); return status != 503 })
		if status != 202 {
			t.Errorf("batch %d, after the disk had space again: %d", seq, status)
		}
	}
	if err := <-exited; err != nil {
		t.Errorf("weir publish: %v\n%s", err, &said)
	}
	if all, cursor := c.readAllOf(t, piped); cursor != 100 || len(all) != 100 {
		t.Errorf("weir publish stored %d batches up to %d, want 100\n%s", len(all), cursor, &said)
	}
}
