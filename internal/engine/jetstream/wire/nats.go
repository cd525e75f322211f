package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsServers are real servers behind one connection.
type natsServers struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	inbox   inbox
	largest atomic.Int64 // size of the largest message that the servers accept, as far as this node knows
}

var _ Servers = (*natsServers)(nil)

// Connect returns the servers behind a connection.
func Connect(nc *nats.Conn) (Servers, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s := &natsServers{nc: nc, js: js, inbox: inbox{over: make(chan struct{})}}
	s.largest.Store(nc.MaxPayload())
	return s, nil
}

// Header fields of JetStream for which nats.go has no constant.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// Store implements Servers. JetStream answers only the last message of an atomic batch.
func (s *natsServers) Store(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	s.largest.Store(s.nc.MaxPayload()) // may wait for the network, like the rest of Store
	last := msgs[len(msgs)-1]
	if len(msgs) > 1 {
		id := nats.NewInbox()[len("_INBOX."):]
		for i, m := range msgs {
			m.Header.Set(batchID, id)
			m.Header.Set(batchSequence, strconv.Itoa(i+1))
			if m == last {
				m.Header.Set(batchCommit, "1")
			} else if err := s.nc.PublishMsg(m); err != nil {
				return 0, err
			}
		}
	}
	answer, err := s.nc.RequestMsgWithContext(ctx, last)
	if err != nil {
		return 0, err
	}
	if seq, ok := acknowledged(answer.Data); ok {
		return seq, nil
	}
	var ack struct {
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return 0, fmt.Errorf("read acknowledgement: %w", err)
	}
	switch {
	case ack.Error != nil:
		return 0, ack.Error
	case ack.Seq == 0:
		return 0, errors.New("acknowledgement has no sequence")
	}
	return ack.Seq, nil
}

// acknowledged parses the usual acknowledgement, {"stream":"weir-log-0","seq":7}, in a fiftieth of
// the time that decoding JSON takes. It accepts the space before "seq" that servers before 2.15 send.
// If it returns false, the answer has another form and must be decoded as JSON.
func acknowledged(answer []byte) (seq uint64, ok bool) {
	const begin, number = `{"stream":"`, `"seq":`
	rest, ok := bytes.CutPrefix(answer, []byte(begin))
	if !ok {
		return 0, false
	}
	name, rest, _ := bytes.Cut(rest, []byte(number))
	if name, ok = bytes.CutSuffix(bytes.TrimSuffix(name, []byte(" ")), []byte(`",`)); !ok {
		return 0, false
	}
	digits := 0
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if bytes.IndexByte(name, '"') >= 0 || digits == 0 || digits == len(rest) || rest[digits] != ',' && rest[digits] != '}' || bytes.Contains(rest, []byte("error")) {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(rest[:digits]), 10, 64)
	return seq, err == nil && seq > 0
}

// ask sends a request to the JetStream API and decodes the answer into got. If the answer is an
// error, ask returns it.
func (s *natsServers) ask(ctx context.Context, subject string, request, got any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := s.nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return err
	}
	var refused struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &refused); err != nil {
		return err
	}
	if refused.Error != nil {
		return refused.Error
	}
	return json.Unmarshal(answer.Data, got)
}

func (s *natsServers) Message(ctx context.Context, stream string, q Query) (Stored, error) {
	var got struct {
		Message struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Header  []byte `json:"hdrs"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	if err := s.ask(ctx, "$JS.API.STREAM.MSG.GET."+stream, q, &got); err != nil {
		return Stored{}, err
	}
	m := Stored{Seq: got.Message.Seq, Subject: got.Message.Subject, Data: got.Message.Data}
	if len(got.Message.Header) > 0 {
		var err error
		if m.Header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
			return Stored{}, err
		}
	}
	return m, nil
}

// Read implements Servers. Each message must arrive within ReadWithin.
func (s *natsServers) Read(ctx context.Context, stream string, q Query) ([]Stored, uint64, error) {
	ask, err := json.Marshal(q)
	if err != nil {
		return nil, 0, err
	}
	if q.Batch > 0 || q.Newest != nil {
		return s.readMany(ctx, stream, ask, q.Batch)
	}
	ctx, cancel := context.WithTimeout(ctx, ReadWithin)
	defer cancel()
	m, err := s.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, ask)
	if err != nil || m.Header.Get("Status") != "" {
		return nil, 0, err
	}
	got, err := direct(m)
	return []Stored{got}, 0, err
}

// readMany asks any replica for messages, which arrive one by one. It reads at most limit messages,
// or all if limit is 0. A message without content marks the end of the answer.
func (s *natsServers) readMany(ctx context.Context, stream string, ask []byte, limit int) (all []Stored, upTo uint64, err error) {
	answers, inbox, err := s.inbox.open(s.nc)
	if err != nil {
		return nil, 0, err
	}
	defer s.inbox.close(inbox)
	if err := s.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, ask); err != nil {
		return nil, 0, err
	}
	for {
		try, cancel := context.WithTimeout(ctx, ReadWithin)
		m, err := answers.next(try)
		cancel()
		if err != nil {
			return nil, 0, err
		}
		if m.Header.Get("Status") != "" || len(m.Data) == 0 && m.Header.Get(jetstream.SequenceHeader) == "" {
			upTo, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64)
			return all, upTo, nil
		}
		got, err := direct(m)
		if err != nil {
			return nil, 0, err
		}
		if all = append(all, got); len(all) == limit {
			return all, 0, nil
		}
	}
}

func direct(m *nats.Msg) (Stored, error) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return Stored{}, fmt.Errorf("message has no sequence: %w", err)
	}
	return Stored{Seq: seq, Subject: m.Header.Get(jetstream.SubjectHeader), Header: m.Header, Data: m.Data}, nil
}

// Headers implements Servers with a consumer, which lives for as long as the call.
func (s *natsServers) Headers(ctx context.Context, stream, subject string, from uint64, visit func(Stored) error) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	c, err := s.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1), AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactiveAfter,
	})
	if err != nil {
		return err
	}
	defer s.forget(stream, c.CachedInfo().Name)
	for pending := c.CachedInfo().NumPending; pending > 0; {
		got, err := c.Fetch(int(min(pending, 2000)), jetstream.FetchMaxWait(Timeout))
		if err != nil {
			return err
		}
		n := 0
		for m := range got.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if err := visit(Stored{Seq: meta.Sequence.Stream, Subject: m.Subject(), Header: m.Headers()}); err != nil {
				return err
			}
			pending = meta.NumPending
			n++
		}
		if err := got.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return err
		}
		if n == 0 {
			return errors.New("pending messages were not delivered")
		}
	}
	return nil
}

// inactiveAfter is how long servers keep a consumer that no node uses.
const inactiveAfter = 10 * time.Second

// forget deletes a consumer without waiting for the answer. Servers remove an unused consumer by
// themselves after a while.
func (s *natsServers) forget(stream, consumer string) {
	s.nc.Publish("$JS.API.CONSUMER.DELETE."+stream+"."+consumer, nil)
}

// Follow implements Servers with a push consumer.
func (s *natsServers) Follow(ctx context.Context, stream string, from uint64, headersOnly bool) (feed *Feed, err error) {
	inbox := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			sub.Unsubscribe()
		}
	}()
	sub.SetPendingLimits(-1, -1) // flow control limits how much is in flight
	request := map[string]any{"stream_name": stream, "config": map[string]any{
		"deliver_subject": inbox, "deliver_policy": "by_start_sequence", "opt_start_seq": from, "ack_policy": "none", "replay_policy": "instant",
		"headers_only": headersOnly, "idle_heartbeat": Beat, "flow_control": true, "mem_storage": true, "num_replicas": 1, "inactive_threshold": 10 * Beat,
	}}
	var got struct {
		Name    string `json:"name"`
		Pending uint64 `json:"num_pending"`
		Cluster *struct {
			Leader string `json:"leader"`
		} `json:"cluster"`
	}
	if err := s.ask(ctx, "$JS.API.CONSUMER.CREATE."+stream, request, &got); err != nil {
		return nil, err
	}
	var once sync.Once
	return &Feed{
		Pending: got.Pending, Near: got.Cluster == nil || got.Cluster.Leader == s.nc.ConnectedServerName(),
		Next: func(within time.Duration) (Delivery, error) {
			m, err := sub.NextMsg(within)
			if err != nil {
				return Delivery{}, err
			}
			return s.delivery(m)
		},
		Close: func() {
			once.Do(func() {
				sub.Unsubscribe()
				s.forget(stream, got.Name)
			})
		},
	}, nil
}

// delivery converts what a push consumer has sent. It answers requests of flow control.
func (s *natsServers) delivery(m *nats.Msg) (Delivery, error) {
	switch status := m.Header.Get("Status"); {
	case status == "":
		meta, err := m.Metadata()
		if err != nil {
			return Delivery{}, err
		}
		return Delivery{Stored: Stored{meta.Sequence.Stream, m.Subject, m.Header, m.Data}, Count: meta.Sequence.Consumer}, nil
	case status != "100":
		return Delivery{}, fmt.Errorf("consumer ended: %s %s", status, m.Header.Get("Description"))
	case m.Reply != "":
		// A flow control request: the server waits for this reply before it sends more.
		return Delivery{}, m.Respond(nil)
	}
	// A stalled consumer waits for a flow control reply that got lost. Its heartbeat contains the
	// subject to which the node can send another reply.
	stalled := m.Header.Get("Nats-Consumer-Stalled")
	if stalled != "" {
		if err := s.nc.Publish(stalled, nil); err != nil {
			return Delivery{}, err
		}
	}
	count, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64)
	if err != nil {
		return Delivery{}, nil
	}
	passed, err := strconv.ParseUint(m.Header.Get("Nats-Last-Stream"), 10, 64)
	if err != nil {
		return Delivery{}, nil
	}
	return Delivery{Count: count, Beat: true, Passed: passed, Stalled: stalled != ""}, nil
}

func (s *natsServers) Purge(ctx context.Context, stream, subject string, below uint64) error {
	var got struct{}
	return s.ask(ctx, "$JS.API.STREAM.PURGE."+stream, map[string]any{"filter": subject, "seq": below}, &got)
}

func (s *natsServers) Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	return info(s.js.Stream(ctx, name))
}

func (s *natsServers) Create(ctx context.Context, c jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	return info(s.js.CreateStream(ctx, c))
}

func (s *natsServers) Update(ctx context.Context, c jetstream.StreamConfig) error {
	_, err := s.js.UpdateStream(ctx, c)
	return err
}

func info(s jetstream.Stream, err error) (*jetstream.StreamInfo, error) {
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

func (s *natsServers) Subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	found, err := s.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	got, err := found.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, err
	}
	return got.State.Subjects, nil
}

func (s *natsServers) Names(ctx context.Context, subject string) (all []string, err error) {
	names := s.js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
	for name := range names.Name() {
		all = append(all, name)
	}
	return all, names.Err()
}

func (s *natsServers) Account(ctx context.Context) (*jetstream.AccountInfo, error) {
	return s.js.AccountInfo(ctx)
}

func (s *natsServers) Say(m *nats.Msg) error { return s.nc.PublishMsg(m) }

func (s *natsServers) Hear(subject string, take func(*nats.Msg)) (stop func(), err error) {
	sub, err := s.nc.Subscribe(subject, take)
	if err != nil {
		return nil, err
	}
	return func() { sub.Unsubscribe() }, nil
}

func (s *natsServers) Flush(within time.Duration) error { return s.nc.FlushTimeout(within) }
func (s *natsServers) Connected() bool                  { return s.nc.IsConnected() }
func (s *natsServers) Server() string                   { return s.nc.ConnectedServerName() }
func (s *natsServers) MaxPayload() int64                { return s.largest.Load() }

func (s *natsServers) Close() {
	s.nc.Close()
	s.inbox.end()
}
