package sim

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/wire"
)

// startReal starts a real NATS server and returns a function that connects to it. It is nil unless the
// program was built with the tag real. The package of the server starts a goroutine every second, by
// the real clock, and that goroutine goes before one of a simulation. So the program that runs
// simulations must not contain the package.
var startReal func(t *testing.T) (connect func() (*nats.Conn, error))

// The simulated servers behave like a real NATS server in every case of this list.
func TestServers(t *testing.T) {
	if startReal == nil {
		args := []string{"-tags", "real"}
		if raced {
			args = append(args, "-race")
		}
		binary := build(t, filepath.Join(t.TempDir(), "real.test"), args...)
		if out, err := exec.CommandContext(t.Context(), binary, "-test.run=^TestServers$").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	connect := startReal(t)
	for i, c := range []struct {
		name string
		run  func(*trial)
	}{
		{"sequences", sequences}, {"conditions", conditions}, {"batches", batches}, {"chain", chain}, {"reads", reads}, {"newest", newestOf}, {"purges", purges},
		{"one message per subject", onePerSubject}, {"lifetimes", lifetimes}, {"headers", headersOf}, {"feeds", feeds}, {"deleted messages in feeds", deleted},
		{"streams", streamsOf}, {"messages that are not stored", unstored}, {"closed connections", closedLinks},
	} {
		t.Run(c.name+" real", func(t *testing.T) {
			t.Parallel()
			c.run(newTrial(t, i, func() (wire.Servers, error) {
				nc, err := connect()
				if err != nil {
					return nil, err
				}
				return wire.Connect(nc)
			}))
		})
		t.Run(c.name+" simulated", func(t *testing.T) {
			t.Parallel()
			s := newServers(3, 0)
			c.run(newTrial(t, i, func() (wire.Servers, error) { return s.connect("node", 0), nil }))
		})
	}
}

// trial is one case on one kind of servers. It has a stream of its own.
type trial struct {
	*testing.T
	s       wire.Servers
	name    string // of the stream, whose subjects begin with the name and a dot
	connect func() wire.Servers
}

func newTrial(t *testing.T, i int, connect func() (wire.Servers, error)) *trial {
	c := &trial{T: t, name: fmt.Sprint("case", i)}
	c.connect = func() wire.Servers {
		s, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	c.s = c.connect()
	c.create(js.StreamConfig{Name: c.name, Subjects: []string{c.name + ".>"}})
	return c
}

func (c *trial) create(config js.StreamConfig) {
	c.Helper()
	config.Storage, config.AllowDirect, config.AllowMsgTTL, config.AllowAtomicPublish = js.FileStorage, true, true, config.MaxMsgsPerSubject == 0
	config.Discard = js.DiscardNew
	_, err := c.s.Create(c.Context(), config)
	c.ok(err)
}

func (c *trial) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// refused checks that a server has answered with an error of this code.
func (c *trial) refused(err error, code int) {
	c.Helper()
	if got, ok := errors.AsType[*js.APIError](err); !ok || int(got.ErrorCode) != code {
		c.Errorf("got %v, want error %d", err, code)
	}
}

func equal[T comparable](c *trial, got, want T, what string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// message makes a message. The fields are names and values of its header.
func (c *trial) message(subject, data string, fields ...string) *nats.Msg {
	m := &nats.Msg{Subject: c.name + "." + subject, Data: []byte(data), Header: nats.Header{}}
	for i := 0; i < len(fields); i += 2 {
		m.Header.Set(fields[i], fields[i+1])
	}
	return m
}

func (c *trial) put(subject, data string, fields ...string) uint64 {
	c.Helper()
	seq, err := c.s.Store(c.Context(), []*nats.Msg{c.message(subject, data, fields...)})
	c.ok(err)
	return seq
}

// after returns the header field that makes a write conditional.
func after(last uint64) []string {
	return []string{js.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10)}
}

func (c *trial) read(q wire.Query) (text []string, upTo uint64) {
	c.Helper()
	all, upTo, err := c.s.Read(c.Context(), c.name, q)
	c.ok(err)
	for _, m := range all {
		text = append(text, fmt.Sprint(m.Seq, " ", m.Subject[len(c.name)+1:], " ", string(m.Data)))
	}
	return text, upTo
}

func (c *trial) reads(q wire.Query, want ...string) {
	c.Helper()
	if got, _ := c.read(q); !slices.Equal(got, want) {
		c.Errorf("%+v: got %q, want %q", q, got, want)
	}
}

func sequences(c *trial) {
	equal(c, c.put("a", "1"), 1, "first sequence")
	equal(c, c.put("b", "2", "X", "y"), 2, "second sequence")
	m, err := c.s.Message(c.Context(), c.name, wire.Query{Seq: 2})
	c.ok(err)
	equal(c, fmt.Sprint(m.Seq, m.Subject, string(m.Data), m.Header.Get("X")), "2"+c.name+".b2y", "message 2")
	m, err = c.s.Message(c.Context(), c.name, wire.Query{LastFor: c.name + ".a"})
	c.ok(err)
	equal(c, m.Seq, 1, "last message of a")
	for _, q := range []wire.Query{{Seq: 3}, {LastFor: c.name + ".c"}} {
		_, err = c.s.Message(c.Context(), c.name, q)
		c.refused(err, int(js.JSErrCodeMessageNotFound))
	}
	info, err := c.s.Stream(c.Context(), c.name)
	c.ok(err)
	equal(c, info.State.LastSeq, 2, "last sequence")
}

func conditions(c *trial) {
	store := func(subject string, last uint64) error {
		_, err := c.s.Store(c.Context(), []*nats.Msg{c.message(subject, "x", after(last)...)})
		return err
	}
	c.refused(store("a", 5), 10071)
	c.ok(store("a", 0))
	c.refused(store("a", 0), 10071)
	c.ok(store("b", 0))
	c.ok(store("a", 1))
	c.refused(store("a", 1), 10071)
	c.ok(c.s.Purge(c.Context(), c.name, c.name+".a", 0))
	c.refused(store("a", 3), 10071)
	c.ok(store("a", 0))
}

func batches(c *trial) {
	c.put("a", "0")
	seq, err := c.s.Store(c.Context(), []*nats.Msg{c.message("a", "1", after(1)...), c.message("a", "2"), c.message("a", "3")})
	c.ok(err)
	equal(c, seq, 4, "sequence of the last message")
	_, err = c.s.Store(c.Context(), []*nats.Msg{c.message("a", "4", after(3)...), c.message("a", "5")})
	c.refused(err, 10071)
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".a", Batch: 9}, "1 a 0", "2 a 1", "3 a 2", "4 a 3")
}

// A condition is stored with its message, so every message names the one before.
func chain(c *trial) {
	c.put("a", "0", after(0)...)
	c.put("b", "1", after(0)...)
	_, err := c.s.Store(c.Context(), []*nats.Msg{c.message("a", "2", after(1)...), c.message("a", "3")})
	c.ok(err)
	for seq, before := range map[uint64]uint64{1: 0, 2: 0, 3: 1, 4: 3} {
		got, _, err := c.s.Read(c.Context(), c.name, wire.Query{Seq: seq})
		c.ok(err)
		equal(c, wire.Before(got[0]), before, fmt.Sprint("message before ", seq))
	}
}

func reads(c *trial) {
	for i := range 6 {
		c.put([]string{"a", "b"}[i%2], fmt.Sprint("payload", i))
	}
	c.reads(wire.Query{Seq: 3}, "3 a payload2")
	c.reads(wire.Query{Seq: 7})
	c.reads(wire.Query{LastFor: c.name + ".b"}, "6 b payload5")
	c.reads(wire.Query{Seq: 2, NextFor: c.name + ".a", Batch: 2}, "3 a payload2", "5 a payload4")
	c.reads(wire.Query{Seq: 6, NextFor: c.name + ".a", Batch: 2})
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".a", Batch: 9, MaxBytes: 1}, "1 a payload0")
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".c", Batch: 9})
}

func newestOf(c *trial) {
	c.put("a", "1")
	c.put("b", "2")
	c.put("a", "3")
	c.put("c", "4")
	got, upTo := c.read(wire.Query{Newest: []string{c.name + ".a", c.name + ".b"}})
	slices.Sort(got)
	equal(c, fmt.Sprint(got, upTo), "[2 b 2 3 a 3] 4", "newest messages")
	got, upTo = c.read(wire.Query{Newest: []string{c.name + ".x"}})
	equal(c, fmt.Sprint(got, upTo), "[] 0", "newest messages of a subject without any")
}

func purges(c *trial) {
	for i := range 5 {
		c.put([]string{"a", "b"}[i%2], fmt.Sprint(i))
	}
	c.ok(c.s.Purge(c.Context(), c.name, c.name+".a", 4))
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".a", Batch: 9}, "5 a 4")
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".b", Batch: 9}, "2 b 1", "4 b 3")
	c.ok(c.s.Purge(c.Context(), c.name, c.name+".a", 1)) // removes nothing
	c.ok(c.s.Purge(c.Context(), c.name, c.name+".x", 1)) // a subject without messages
	c.ok(c.s.Purge(c.Context(), c.name, c.name+".a", 0))
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".a", Batch: 9})
	equal(c, c.put("a", "x"), 6, "next sequence")
}

func onePerSubject(c *trial) {
	plain := c.name
	c.name += "one"
	c.create(js.StreamConfig{Name: c.name, Subjects: []string{c.name + ".>"}, MaxMsgsPerSubject: 1})
	c.put("a", "1")
	c.put("b", "2")
	c.put("a", "3", after(1)...)
	c.reads(wire.Query{Seq: 1})
	c.reads(wire.Query{LastFor: c.name + ".a"}, "3 a 3")
	c.reads(wire.Query{LastFor: c.name + ".b"}, "2 b 2")
	c.name = plain
}

func lifetimes(c *trial) {
	c.put("a", "1", js.MsgTTLHeader, "1s")
	c.put("a", "2", js.MsgTTLHeader, "1h")
	c.put("b", "3", js.MsgTTLHeader, "1s")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if got, _ := c.read(wire.Query{Seq: 3}); got == nil {
			break
		}
		select {
		case <-tick.C:
		case <-c.Context().Done():
			c.Fatal("the message does not expire")
		}
	}
	c.reads(wire.Query{Seq: 1, NextFor: c.name + ".a", Batch: 9}, "2 a 2")
	c.put("b", "4", after(0)...)
}

func headersOf(c *trial) {
	for i := range 5 {
		c.put([]string{"a", "b"}[i%2], "payload", "X", fmt.Sprint(i))
	}
	var got []string
	visit := func(m wire.Stored) error {
		got = append(got, fmt.Sprint(m.Seq, " ", m.Header.Get("X"), string(m.Data)))
		return nil
	}
	c.ok(c.s.Headers(c.Context(), c.name, c.name+".a", 2, visit))
	equal(c, fmt.Sprint(got), "[3 2 5 4]", "headers of a from 2 on")
	got = nil
	c.ok(c.s.Headers(c.Context(), c.name, c.name+".x", 1, visit))
	equal(c, len(got), 0, "headers of a subject without messages")
	stop := errors.New("stop")
	if err := c.s.Headers(c.Context(), c.name, c.name+".a", 1, func(wire.Stored) error { return stop }); !errors.Is(err, stop) {
		c.Errorf("Headers: %v, want the error of visit", err)
	}
}

// next returns the next message of a feed. It checks the signs of life before the message.
func (c *trial) next(f *wire.Feed, sent uint64) wire.Delivery {
	c.Helper()
	for {
		d, err := f.Next(time.Minute)
		c.ok(err)
		if d.Seq > 0 {
			return d
		}
		if d.Beat && d.Count > sent {
			c.Errorf("the heartbeat %+v counts more than %d messages", d, sent)
		}
	}
}

func feeds(c *trial) {
	for i := range 3 {
		c.put("a", fmt.Sprint(i), "X", "y")
	}
	f, err := c.s.Follow(c.Context(), c.name, 2, false)
	c.ok(err)
	defer f.Close()
	equal(c, f.Pending, 2, "pending")
	equal(c, f.Near, true, "near")
	short, err := c.s.Follow(c.Context(), c.name, 4, true)
	c.ok(err)
	equal(c, short.Pending, 0, "pending after the end")
	c.put("b", "3", "X", "y")
	for i := range uint64(3) {
		d := c.next(f, i)
		equal(c, fmt.Sprintln(d.Seq, d.Count, string(d.Data), d.Header.Get("X")), fmt.Sprintln(i+2, i+1, i+1, "y"), "delivery")
	}
	d := c.next(short, 0)
	equal(c, fmt.Sprint(d.Seq, d.Count, d.Subject[len(c.name):], len(d.Data), d.Header.Get("X")), "4 1.b0y", "delivery without payload")
	for !d.Beat {
		d, err = short.Next(time.Minute)
		c.ok(err)
	}
	equal(c, fmt.Sprint(d.Seq, d.Count, d.Passed, d.Stalled), "0 1 4 false", "heartbeat")
	short.Close()
	short.Close()
	if _, err := short.Next(time.Minute); err == nil {
		c.Error("a closed feed delivers")
	}
}

func deleted(c *trial) {
	for i := range 5 {
		c.put([]string{"a", "b"}[i%2], fmt.Sprint(i))
	}
	c.ok(c.s.Purge(c.Context(), c.name, c.name+".a", 0))
	f, err := c.s.Follow(c.Context(), c.name, 1, false)
	c.ok(err)
	defer f.Close()
	equal(c, f.Pending, 2, "pending")
	equal(c, c.next(f, 0).Seq, 2, "first message")
	equal(c, c.next(f, 1).Seq, 4, "second message")
	for {
		d, err := f.Next(time.Minute)
		c.ok(err)
		if d.Beat {
			equal(c, fmt.Sprint(d.Count, d.Passed), "2 5", "heartbeat after the deleted messages")
			return
		}
	}
}

func streamsOf(c *trial) {
	if _, err := c.s.Stream(c.Context(), "other"); !errors.Is(err, js.ErrStreamNotFound) {
		c.Errorf("a stream that does not exist: %v", err)
	}
	config := js.StreamConfig{Name: c.name + "more", Subjects: []string{c.name + "more.log.*"}, Metadata: map[string]string{"one": "1"}}
	c.create(config)
	info, err := c.s.Stream(c.Context(), config.Name)
	c.ok(err)
	equal(c, info.Config.Metadata["one"], "1", "metadata")
	equal(c, info.State.LastSeq, 0, "last sequence of a new stream")
	info.Config.Metadata["two"] = "2"
	c.ok(c.s.Update(c.Context(), info.Config))
	info, err = c.s.Stream(c.Context(), config.Name)
	c.ok(err)
	equal(c, info.Config.Metadata["one"]+info.Config.Metadata["two"], "12", "changed metadata")
	config.Metadata = map[string]string{"one": "another"}
	config.Storage = js.FileStorage
	_, err = c.s.Create(c.Context(), config)
	if !errors.Is(err, js.ErrStreamNameAlreadyInUse) {
		c.Errorf("a second stream with the same name: %v", err)
	}
	names, err := c.s.Names(c.Context(), c.name+"more.log.>")
	c.ok(err)
	equal(c, fmt.Sprint(names), "["+config.Name+"]", "names")
	for _, subject := range []string{"x.1", "x.1", "x.2", "y.1"} {
		c.put(subject, "")
	}
	subjects, err := c.s.Subjects(c.Context(), c.name, c.name+".x.*")
	c.ok(err)
	equal(c, fmt.Sprint(subjects), fmt.Sprintf("map[%s.x.1:2 %s.x.2:1]", c.name, c.name), "subjects")
}

func unstored(c *trial) {
	heard := make(chan string, 10)
	other := c.connect()
	stop, err := other.Hear("said."+c.name, func(m *nats.Msg) { heard <- string(m.Data) + m.Header.Get("X") })
	c.ok(err)
	c.ok(other.Flush(time.Minute))
	for _, text := range []string{"one", "two"} {
		c.ok(c.s.Say(&nats.Msg{Subject: "said." + c.name, Data: []byte(text), Header: nats.Header{"X": {"y"}}}))
		equal(c, <-heard, text+"y", "message")
	}
	stop()
	info, err := c.s.Stream(c.Context(), c.name)
	c.ok(err)
	equal(c, info.State.LastSeq, 0, "last sequence")
}

func closedLinks(c *trial) {
	f, err := c.s.Follow(c.Context(), c.name, 1, false)
	c.ok(err)
	equal(c, c.s.Connected(), true, "connected")
	c.s.Close()
	equal(c, c.s.Connected(), false, "connected")
	_, err = c.s.Store(c.Context(), []*nats.Msg{c.message("a", "")})
	equal(c, errors.Is(err, nats.ErrConnectionClosed), true, fmt.Sprint("write on a closed connection: ", err))
	if _, err := f.Next(time.Minute); err == nil {
		c.Error("the feed of a closed connection delivers")
	}
}
