package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/embedded"
)

// connected returns two connections to a NATS server, and the Servers behind the first.
func connected(t *testing.T) (servers *natsServers, other *nats.Conn) {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	var both [2]*nats.Conn
	for i := range both {
		if both[i], err = s.Connect(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(both[i].Close)
	}
	got, err := Connect(both[0])
	if err != nil {
		t.Fatal(err)
	}
	return got.(*natsServers), both[1]
}

// onlyIf returns a message with a condition.
func onlyIf(subject string, last uint64) []*nats.Msg {
	m := &nats.Msg{Subject: subject, Header: nats.Header{}}
	Expect(m, last)
	return []*nats.Msg{m}
}

// script plays a stream. Each request gets the answers of one line, which are separated by "|". The
// function that it returns tells the subjects to which the answers were sent.
func script(t *testing.T, nc *nats.Conn, subject string, lines ...string) (replies func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m.Reply)
		if len(lines) == 0 {
			return
		}
		for answer := range strings.SplitSeq(lines[0], "|") {
			m.Respond([]byte(answer))
		}
		lines = lines[1:]
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func stored(seq int) string { return fmt.Sprintf(`{"stream":"s","seq":%d}`, seq) }

// A write is not confirmed by an acknowledgement of an earlier write that arrives a second time, nor
// refused by an error that arrives late. Writes that were acknowledged share a subject for their
// answers, and a write after an error gets another one.
func TestMailbox(t *testing.T) {
	servers, other := connected(t)
	const refusal = `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"}}`
	replies := script(t, other, "log.0.*",
		stored(3),                             // first write
		stored(3)+"|"+stored(5),               // second: the acknowledgement of the first comes again
		refusal,                               // third: an error, of which nobody knows what it is about
		stored(8),                             // so the third is sent again
		`{"stream":"s","domain":"d","seq":9}`, // fourth: an acknowledgement in another form
		refusal, refusal,                      // fifth: refused twice
	)
	for i, want := range []uint64{3, 5, 8, 9} {
		if seq, err := servers.Store(t.Context(), onlyIf(fmt.Sprint("log.0.", i), 1)); err != nil || seq != want {
			t.Errorf("write %d is stored at %d, error %v; want %d", i+1, seq, err, want)
		}
	}
	_, err := servers.Store(t.Context(), onlyIf("log.0.1", 1))
	if refused, ok := errors.AsType[*jetstream.APIError](err); !ok || refused.ErrorCode != wrongLast {
		t.Errorf("a write that is refused: %v, want the error of the server", err)
	}
	all := replies()
	if len(all) != 7 || all[0] != all[1] || all[1] != all[2] || all[3] == all[2] || all[4] == all[2] || all[4] != all[5] || all[6] == all[5] {
		t.Errorf("subjects for the answers: %q", all)
	}
}

// A write without an answer ends with its context, and its mailbox is not used again: the answer may
// still arrive. If the connection is closed, a write ends at once.
func TestMailboxWithoutAnswer(t *testing.T) {
	servers, other := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 1)
	if _, err := other.Subscribe("log.1.*", func(*nats.Msg) { asked <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := servers.Store(ctx, onlyIf("log.1.0", 1))
		done <- err
	}()
	<-asked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a write whose caller stops waiting: %v", err)
	}
	servers.mailboxes.mu.Lock()
	if n := len(servers.mailboxes.unused["log.1."]); n != 0 {
		t.Errorf("%d mailboxes of a write without an answer are used again", n)
	}
	servers.mailboxes.mu.Unlock()
	go func() {
		_, err := servers.Store(context.Background(), onlyIf("log.1.0", 1))
		done <- err
	}()
	<-asked
	servers.Close()
	select {
	case err := <-done:
		if !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("a write on a connection that is closed: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a write waits although the connection was closed")
	}
}

// Many writes at the same time each get their own acknowledgement, and their mailboxes are kept up to
// a limit.
func TestMailboxesAtOnce(t *testing.T) {
	servers, _ := connected(t)
	if _, err := servers.Create(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"log.0.*"}}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	by := map[uint64]string{}
	var all sync.WaitGroup
	for i := range 3 * mailboxesMost {
		all.Go(func() {
			subject, last := fmt.Sprint("log.0.", i), uint64(0)
			for range 3 {
				seq, err := servers.Store(t.Context(), onlyIf(subject, last))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				by[seq] = subject
				mu.Unlock()
				last = seq
			}
		})
	}
	all.Wait()
	for seq, subject := range by {
		if m, err := servers.Message(t.Context(), "s", Query{Seq: seq}); err != nil || m.Subject != subject {
			t.Fatalf("message %d was acknowledged to %s and belongs to %s, error %v", seq, subject, m.Subject, err)
		}
	}
	if n := len(servers.mailboxes.unused["log.0."]); len(by) != 9*mailboxesMost || n > mailboxesMost {
		t.Errorf("%d messages, %d unused mailboxes", len(by), n)
	}
}
