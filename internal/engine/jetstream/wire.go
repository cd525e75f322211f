package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// Header fields of JetStream for which nats.go has no constant.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

var (
	// errConflict means that the last message of the subject is not the expected one. Nothing was
	// stored.
	errConflict = errors.New("another message was stored first")
	// errRefused means that the servers will never accept this request. Nothing was stored.
	errRefused = errors.New("refused by JetStream")
	// errInProcess means that another write to the subject is still in flight. It may be an earlier
	// attempt of this node.
	errInProcess = errors.New("another write is in flight")
)

// The JetStream error codes that the engine handles.
const (
	wrongLast        = 10071
	inProcess        = 10164
	accountExceeded  = 10002
	storageExceeded  = 10047
	noSpace          = 10023
	maxBytesExceeded = 10077
	streamOffline    = 10118
)

// expecting makes a message conditional on the sequence of the last message of its subject (0 if
// there is none).
func expecting(m *nats.Msg, last uint64) {
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
}

// publish stores all of the messages or none, and returns the JetStream sequence of the last one.
// After errConflict, errRefused and engine.ErrFull nothing was stored. After any other error the
// outcome is unknown.
func (e *Engine) publish(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.attempt)
	defer cancel()
	return e.send(ctx, msgs)
}

// send is like publish, but has no timeout other than that of ctx.
func (e *Engine) send(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	last := msgs[len(msgs)-1]
	if len(msgs) > 1 {
		id := nats.NewInbox()[len("_INBOX."):]
		for i, m := range msgs {
			m.Header.Set(batchID, id)
			m.Header.Set(batchSequence, strconv.Itoa(i+1))
			if m == last {
				m.Header.Set(batchCommit, "1")
			} else if err := e.nc.PublishMsg(m); err != nil {
				return 0, err
			}
		}
	}
	// JetStream answers only the last message of an atomic batch.
	answer, err := e.nc.RequestMsgWithContext(ctx, last)
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
	case ack.Error == nil && ack.Seq > 0:
		return ack.Seq, nil
	case ack.Error == nil:
		return 0, errors.New("acknowledgement has no sequence")
	}
	switch ack.Error.ErrorCode {
	case wrongLast:
		return 0, errConflict
	case inProcess:
		return 0, errInProcess
	case accountExceeded, storageExceeded, noSpace, maxBytesExceeded:
		return 0, fmt.Errorf("%w: %w", engine.ErrFull, ack.Error)
	case streamOffline:
		return 0, ack.Error
	}
	// JetStream may refuse an atomic batch because some of its messages got lost, and may accept it
	// when it is sent again. So only the refusal of a single message is final.
	if ack.Error.Code == 400 && len(msgs) == 1 {
		return 0, fmt.Errorf("%w: %w", errRefused, ack.Error)
	}
	return 0, ack.Error
}

// acknowledged parses the usual acknowledgement, {"stream":"weir-log-0","seq":7}, in a fiftieth of
// the time that decoding JSON takes. If it returns false, the answer is not in this form and must
// be decoded as JSON. For example, servers before 2.15 put a space into the acknowledgement.
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

// stored is a message that was read from a stream.
type stored struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
}

// query selects messages of a stream.
type query struct {
	Seq      uint64   `json:"seq,omitempty"`
	LastFor  string   `json:"last_by_subj,omitempty"`
	NextFor  string   `json:"next_by_subj,omitempty"`
	Newest   []string `json:"multi_last,omitempty"`
	Batch    int      `json:"batch,omitempty"`
	MaxBytes int      `json:"max_bytes,omitempty"`
}

// askLeader asks the stream's leader for one message. The leader has every message that was
// acknowledged. The error is engine.ErrNotFound if there is no such message. While there is no
// leader, askLeader tries again.
func (e *Engine) askLeader(ctx context.Context, stream string, q query) (stored, error) {
	ask, err := json.Marshal(q)
	if err != nil {
		return stored{}, err
	}
	return withRetry(ctx, e, func(ctx context.Context) (stored, error) {
		answer, err := e.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, ask)
		if err != nil {
			return stored{}, err
		}
		var got struct {
			Error   *jetstream.APIError `json:"error"`
			Message struct {
				Subject string `json:"subject"`
				Seq     uint64 `json:"seq"`
				Header  []byte `json:"hdrs"`
				Data    []byte `json:"data"`
			} `json:"message"`
		}
		if err := json.Unmarshal(answer.Data, &got); err != nil {
			return stored{}, err
		}
		if got.Error != nil {
			if got.Error.Code == 404 && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
				return stored{}, engine.ErrNotFound
			}
			return stored{}, got.Error
		}
		m := stored{seq: got.Message.Seq, subject: got.Message.Subject, data: got.Message.Data}
		if len(got.Message.Header) > 0 {
			if m.header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
				return stored{}, err
			}
		}
		return m, nil
	})
}

// withRetry calls the function ask until it returns a definite answer, ctx ends, or Patience has
// passed.
func withRetry[T any](ctx context.Context, e *Engine, ask func(ctx context.Context) (T, error)) (T, error) {
	var none T
	deadline := time.Now().Add(e.opts.Patience)
	for {
		try, cancel := context.WithTimeout(ctx, attempt)
		got, err := ask(try)
		cancel()
		switch {
		case err == nil || errors.Is(err, engine.ErrNotFound) || errors.Is(err, errConflict) || errors.Is(err, errRefused) || errors.Is(err, engine.ErrFull):
			return got, err
		case e.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return none, engine.ErrClosed
		case ctx.Err() != nil:
			return none, ctx.Err()
		case time.Now().After(deadline):
			return none, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
		if err := pause(ctx, retry/4); err != nil {
			return none, err
		}
	}
}

// read asks any replica for messages and returns them in order. The replica may lag behind, so a
// message may exist even if read does not return it. If the messages have more than MaxBytes in
// total, read returns only the first ones.
func (e *Engine) read(ctx context.Context, stream string, q query) ([]stored, error) {
	ask, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if q.Batch == 0 {
		ctx, cancel := context.WithTimeout(ctx, readWithin)
		defer cancel()
		m, err := e.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, ask)
		if err != nil {
			return nil, err
		}
		if m.Header.Get("Status") != "" {
			return nil, nil
		}
		got, err := direct(m)
		return []stored{got}, err
	}
	all, _, err := e.readMany(ctx, stream, ask, q.Batch)
	return all, err
}

// readMany asks any replica for messages, which arrive one by one. It reads at most limit messages,
// or all if limit is 0. Each must arrive within readWithin. The result end is the header of the
// message that marks the end of the answer. Its status is 204 if there were messages, and 404 if
// there were none.
func (e *Engine) readMany(ctx context.Context, stream string, ask []byte, limit int) (all []stored, end nats.Header, err error) {
	inbox := e.nc.NewRespInbox()
	sub, err := e.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, nil, err
	}
	defer sub.Unsubscribe()
	if err := e.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, ask); err != nil {
		return nil, nil, err
	}
	for {
		try, cancel := context.WithTimeout(ctx, readWithin)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		if err != nil {
			return nil, nil, err
		}
		if m.Header.Get("Status") != "" || len(m.Data) == 0 && m.Header.Get(jetstream.SequenceHeader) == "" {
			return all, m.Header, nil
		}
		got, err := direct(m)
		if err != nil {
			return nil, nil, err
		}
		if all = append(all, got); len(all) == limit {
			return all, nil, nil
		}
	}
}

// newest asks any replica for the newest message of a subject. It returns the sequence of this
// message (0: there is none), and the last sequence of the stream that the replica has (0: the
// replica did not report it). A replica reports its last sequence only if it finds a message, so
// nonEmpty must be a subject that has a message.
func (e *Engine) newest(ctx context.Context, stream, subject, nonEmpty string) (at, upTo uint64, err error) {
	ask, err := json.Marshal(query{Newest: []string{subject, nonEmpty}})
	if err != nil {
		return 0, 0, err
	}
	all, end, err := e.readMany(ctx, stream, ask, 0)
	if err != nil {
		return 0, 0, err
	}
	for _, m := range all {
		if m.subject == subject {
			at = m.seq
		}
	}
	upTo, _ = strconv.ParseUint(end.Get("Nats-UpTo-Sequence"), 10, 64)
	return at, upTo, nil
}

func direct(m *nats.Msg) (stored, error) {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("message has no sequence: %w", err)
	}
	return stored{seq: seq, subject: m.Header.Get(jetstream.SubjectHeader), header: m.Header, data: m.Data}, nil
}
