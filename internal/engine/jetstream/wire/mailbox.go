package wire

import (
	"context"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A mailbox receives the acknowledgements of writes to one JetStream stream, one write at a time.
// The requests of nats.go use a new subject each time. Then every server on the way has to search its
// subscriptions, because it has never seen the subject of the acknowledgement before, and on this
// node one more goroutine has to pass the acknowledgement on.
//
// An acknowledgement names the message that it is about only by a sequence. Servers may send one
// twice after a new leader was elected, so the mailbox may receive an old one while a later write
// waits. Sequences of a stream only grow, and a mailbox is used again only if its last write was
// acknowledged. So an acknowledgement counts only if its sequence is higher than the last one. After
// anything else (an error, or no answer at all) the mailbox is not used again.
type mailbox struct {
	subject string
	sub     *nats.Subscription
	answers chan *nats.Msg
	last    uint64 // sequence of the last acknowledgement
}

const (
	// mailboxRoom is the number of messages that a mailbox can hold. Further ones are lost, which
	// looks like a server that does not answer.
	mailboxRoom = 4
	// mailboxesMost is the maximum number of unused mailboxes per stream.
	mailboxesMost = 64
)

// mailboxes are the mailboxes that no write uses, by the stream that they belong to: the subject of a
// message without its last token stands for the stream.
type mailboxes struct {
	mu     sync.Mutex
	unused map[string][]*mailbox
}

func streamOf(subject string) string { return subject[:strings.LastIndexByte(subject, '.')+1] }

// take returns a mailbox for a message with this subject.
func (b *mailboxes) take(nc *nats.Conn, subject string) (*mailbox, error) {
	stream := streamOf(subject)
	b.mu.Lock()
	if all := b.unused[stream]; len(all) > 0 {
		box := all[len(all)-1]
		b.unused[stream] = all[:len(all)-1]
		b.mu.Unlock()
		return box, nil
	}
	b.mu.Unlock()
	box := &mailbox{subject: nc.NewInbox(), answers: make(chan *nats.Msg, mailboxRoom)}
	var err error
	box.sub, err = nc.ChanSubscribe(box.subject, box.answers)
	return box, err
}

// put takes back a mailbox whose last write, of a message with this subject, was acknowledged.
func (b *mailboxes) put(box *mailbox, subject string) {
	stream := streamOf(subject)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.unused[stream]) >= mailboxesMost {
		box.sub.Unsubscribe()
		return
	}
	if b.unused == nil {
		b.unused = map[string][]*mailbox{}
	}
	b.unused[stream] = append(b.unused[stream], box)
}

// storeOne sends a message with a condition and waits until it is acknowledged. It returns false if
// it got anything else than an acknowledgement. Then the outcome is unknown: the answer may belong to
// an earlier message. The condition allows the caller to send the message again.
func (s *natsServers) storeOne(ctx context.Context, m *nats.Msg) (seq uint64, ok bool, err error) {
	box, err := s.mailboxes.take(s.nc, m.Subject)
	if err != nil {
		return 0, false, err
	}
	m.Reply = box.subject
	if err = s.nc.PublishMsg(m); err == nil {
		seq, ok, err = box.next(ctx, s.inbox.over)
	}
	if m.Reply = ""; ok {
		s.mailboxes.put(box, m.Subject)
	} else {
		box.sub.Unsubscribe()
	}
	return seq, ok, err
}

// next waits for an acknowledgement with a sequence that is higher than the last one.
func (b *mailbox) next(ctx context.Context, over <-chan struct{}) (seq uint64, ok bool, err error) {
	for {
		select {
		case m := <-b.answers:
			seq, refusal := outcome(m.Data)
			if refusal != nil {
				return 0, false, nil
			}
			if seq > b.last {
				b.last = seq
				return seq, true, nil
			}
		case <-ctx.Done():
			return 0, false, ctx.Err()
		case <-over:
			return 0, false, nats.ErrConnectionClosed
		}
	}
}

// conditional reports whether a write is a single message with a condition on the last message of its
// subject, so that it can be stored only once, no matter how often it is sent.
func conditional(msgs []*nats.Msg) bool {
	return len(msgs) == 1 && msgs[0].Header[jetstream.ExpectedLastSubjSeqHeader] != nil
}
