package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
)

// servers simulates a cluster of NATS servers, as far as the JetStream engine uses it. Each stream
// has a copy on every server. One of the copies leads: it orders all changes. The other copies may
// lag behind it.
type servers struct {
	// gate is called for every request and every delivery. It waits until the scheduler lets the
	// message go on, and returns an error if the message gets lost. If gate is nil, all messages
	// arrive at once.
	gate  func(name string) error
	quiet atomic.Bool // requests do not wait, because nothing else happens at the same time
	seed  uint64

	mu      sync.Mutex
	source  *rand.PCG // nil: nothing is left to chance
	rng     *rand.Rand
	n       int    // number of servers
	cut     []bool // the server cannot reach the others
	streams map[string]*ledger
	links   []*link
	steps   map[string]int // number of calls of gate by name
	work    sync.WaitGroup // messages on their way
	waits   atomic.Int64   // number of timeouts
}

// Errors that the function gate returns.
var (
	errLost       = errors.New("the request gets lost")
	errUnanswered = errors.New("the answer gets lost")
)

// newServers returns servers without data. If the seed is 0, nothing is left to chance.
func newServers(n int, seed uint64) *servers {
	s := &servers{n: n, cut: make([]bool, n), seed: seed, streams: map[string]*ledger{}, steps: map[string]int{}}
	if seed != 0 {
		s.source = &rand.PCG{}
		s.rng = rand.New(s.source)
	}
	return s
}

// ledger is one JetStream stream.
type ledger struct {
	config    js.StreamConfig
	created   time.Time
	copies    []*replica
	leader    int // the server whose copy leads; -1 during an election
	deposed   int // a server that was replaced as leader and does not know it; -1: none
	changes   []change
	last      uint64      // last sequence
	proposals []*proposal // writes that the leader has accepted and not stored yet, in order
	feeds     []*feeder
}

// change is a step in the order of a stream, which every copy takes: a stored message or a purge.
type change struct {
	message *letter
	subject string // subject to purge
	below   uint64 // the purge removes all messages with a lower sequence
}

// letter is a stored message.
type letter struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
	expires time.Time // zero: never
}

// replica is the copy of a stream on one server.
type replica struct {
	applied int       // number of changes that the copy has applied
	mortal  time.Time // when the first message expires; zero: never
	last    uint64
	letters []*letter // in the order of their sequences
}

// proposal is a write that the leader of a stream has accepted.
type proposal struct {
	subject string
	letters []*letter
	over    bool          // the write was stored, or dropped by an election
	agreed  chan struct{} // closed when the write is stored and the leader can answer
}

// tell makes the copy apply changes, up to the given number.
func (r *replica) tell(l *ledger, upTo int) {
	for ; r.applied < upTo; r.applied++ {
		c := l.changes[r.applied]
		if c.message == nil {
			r.letters = slices.DeleteFunc(r.letters, func(m *letter) bool { return m.subject == c.subject && m.seq < c.below })
			continue
		}
		if l.config.MaxMsgsPerSubject == 1 {
			r.letters = slices.DeleteFunc(r.letters, func(m *letter) bool { return m.subject == c.message.subject })
		}
		r.letters = append(r.letters, c.message)
		r.dies(c.message)
		r.last = c.message.seq
	}
}

// dies notes when a message expires.
func (r *replica) dies(m *letter) {
	if !m.expires.IsZero() && (r.mortal.IsZero() || m.expires.Before(r.mortal)) {
		r.mortal = m.expires
	}
}

// sweep removes the messages whose time has come.
func (r *replica) sweep() {
	now := time.Now()
	if r.mortal.IsZero() || now.Before(r.mortal) {
		return
	}
	r.letters = slices.DeleteFunc(r.letters, func(m *letter) bool { return !m.expires.IsZero() && !now.Before(m.expires) })
	r.mortal = time.Time{}
	for _, m := range r.letters {
		r.dies(m)
	}
}

// search returns the index of the first message with this sequence or a higher one.
func (r *replica) search(seq uint64) int {
	i, _ := slices.BinarySearchFunc(r.letters, seq, func(m *letter, seq uint64) int { return cmp.Compare(m.seq, seq) })
	return i
}

// newest returns the newest message of a subject, or nil.
func (r *replica) newest(subject string) *letter {
	for _, m := range slices.Backward(r.letters) {
		if m.subject == subject {
			return m
		}
	}
	return nil
}

// lead returns the copy that leads, with everything that was agreed.
func (l *ledger) lead() *replica {
	r := l.copies[l.leader]
	r.tell(l, len(l.changes))
	r.sweep()
	return r
}

// store stores all proposals up to the given one, in order. The caller holds servers.mu.
func (s *servers) store(l *ledger, upTo *proposal) { s.settle(l, upTo, false) }

// settle does the work of store. If silent is true, no server answers the writes.
func (s *servers) settle(l *ledger, upTo *proposal, silent bool) {
	for len(l.proposals) > 0 && !upTo.over {
		p := l.proposals[0]
		l.proposals = l.proposals[1:]
		for _, m := range p.letters {
			l.last++
			m.seq = l.last
			l.changes = append(l.changes, change{message: m})
		}
		p.over = true
		if !silent {
			close(p.agreed)
		}
	}
	s.feed(l)
}

// refusal returns the error with which a leader refuses a write; nil: it accepts the write.
func (l *ledger) refusal(r *replica, first *nats.Msg) error {
	text := first.Header.Get(js.ExpectedLastSubjSeqHeader)
	if text == "" {
		return nil
	}
	want, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return &js.APIError{Code: 400, ErrorCode: 10000, Description: "bad request"}
	}
	for _, p := range l.proposals {
		if p.subject == first.Subject {
			return &js.APIError{Code: 400, ErrorCode: 10164, Description: "last sequence by subject: another write is in process"}
		}
	}
	last := uint64(0)
	if m := r.newest(first.Subject); m != nil {
		last = m.seq
	}
	if last != want {
		return &js.APIError{Code: 400, ErrorCode: 10071, Description: fmt.Sprintf("wrong last sequence: %d", last)}
	}
	return nil
}

// elect makes another server the leader. The writes that the old leader has accepted and not stored
// are stored or dropped, but never answered. If deposed is true, the old leader does not notice the
// election, and answers some requests from its old copy.
func (s *servers) elect(l *ledger, leader int, deposed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chance("election of " + l.config.Name + strconv.Itoa(len(l.changes)))
	old := l.leader
	if keep := s.pick(len(l.proposals) + 1); keep > 0 {
		s.settle(l, l.proposals[keep-1], true)
	}
	for _, p := range l.proposals {
		p.over = true
	}
	l.proposals = nil
	l.leader, l.deposed = leader, -1
	if deposed {
		l.deposed = old
	}
	s.feed(l)
}

// reachable returns the servers that a server can reach, itself included.
func (s *servers) reachable(from int) (all []int) {
	for i := range s.n {
		if i == from || !s.cut[i] && !s.cut[from] {
			all = append(all, i)
		}
	}
	return all
}

// copyFor returns the copy that answers a read of a node. It may lag behind. The caller holds
// servers.mu.
func (s *servers) copyFor(l *ledger, k *link) (r *replica, server int) {
	all := s.reachable(k.server)
	server = all[s.pick(len(all))]
	return s.copyOn(l, server), server
}

// copyOn returns the copy on a server, which may have applied more changes since it was last used.
func (s *servers) copyOn(l *ledger, server int) *replica {
	r := l.copies[server]
	switch upTo := len(l.changes); {
	case server == l.leader:
		r.tell(l, upTo)
	case s.cut[server] || server == l.deposed:
	case s.rng != nil && s.pick(4) == 0:
		r.tell(l, r.applied+s.pick(upTo-r.applied+1))
	default:
		r.tell(l, upTo)
	}
	r.sweep()
	return r
}

// chance makes the next results of pick depend only on the seed and on the name of a message. So they
// do not depend on the order in which messages arrive that go on at the same time. The caller holds
// servers.mu.
func (s *servers) chance(name string) {
	if s.source != nil {
		s.source.Seed(s.seed, hash(name))
	}
}

// pick returns a random number below n, or 0 without a scheduler.
func (s *servers) pick(n int) int {
	if s.rng == nil || n < 2 {
		return 0
	}
	return s.rng.IntN(n)
}

// pass waits until the scheduler lets a message go on, unless the servers are quiet. It returns the
// name of the message, with a number that no earlier message of this name has.
func (s *servers) pass(name string) (numbered string, fate error) {
	if s.quiet.Load() {
		return s.number(name), nil
	}
	return s.wait(name)
}

// wait does the same as pass, but waits even if the servers are quiet.
func (s *servers) wait(name string) (numbered string, fate error) {
	if s.gate == nil {
		return name, nil
	}
	name = s.number(name)
	return name, s.gate(name)
}

func (s *servers) number(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps[name]++
	return name + " #" + strconv.Itoa(s.steps[name])
}

// leads returns the stream if a node can reach its leader. If stale is true, the node reaches a
// server that was replaced as leader and does not know it. If there is such a server and astray is
// true, the node asks that server. The caller holds servers.mu.
func (s *servers) leads(k *link, stream string, astray bool) (l *ledger, stale bool, err error) {
	l = s.streams[stream]
	if l == nil {
		return nil, false, js.ErrStreamNotFound
	}
	all := s.reachable(k.server)
	if l.deposed >= 0 && slices.Contains(all, l.deposed) && (len(all) == 1 || astray) {
		return l, true, nil
	}
	if l.leader < 0 || !slices.Contains(all, l.leader) || len(all) <= s.n/2 {
		return nil, false, errLost
	}
	return l, false, nil
}

// info describes a stream. The caller holds servers.mu.
func (s *servers) info(l *ledger, r *replica) *js.StreamInfo {
	c := l.config
	c.Metadata = maps.Clone(c.Metadata)
	state := js.StreamState{LastSeq: r.last, Msgs: uint64(len(r.letters))}
	for _, m := range r.letters {
		state.Bytes += uint64(len(m.data))
	}
	cluster := &js.ClusterInfo{Leader: serverName(l.leader)}
	for i := range s.n {
		if i != l.leader {
			active := time.Duration(0)
			if s.cut[i] {
				active = time.Minute
			}
			cluster.Replicas = append(cluster.Replicas, &js.PeerInfo{Name: serverName(i), Current: true, Active: active})
		}
	}
	return &js.StreamInfo{Config: c, Created: l.created, State: state, Cluster: cluster}
}

func serverName(i int) string {
	if i < 0 {
		return ""
	}
	return fmt.Sprint("server-", i)
}

// matches reports whether a subject matches a filter that may end in a wildcard.
func matches(subject, filter string) bool {
	prefix := strings.TrimRight(filter, "*>")
	return subject == filter || prefix != filter && strings.HasPrefix(subject, prefix)
}

// streamOf returns the stream that stores messages of a subject, or "".
func (s *servers) streamOf(subject string) string {
	first := ""
	for name, l := range s.streams {
		if (first == "" || name < first) && slices.ContainsFunc(l.config.Subjects, func(filter string) bool { return matches(subject, filter) }) {
			first = name
		}
	}
	return first
}

// lifetime returns when a message expires; zero: never.
func lifetime(h nats.Header) time.Time {
	d, err := time.ParseDuration(h.Get(js.MsgTTLHeader))
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// within returns a context that ends after d at the latest, like the timeouts of the NATS client. No
// two timeouts end at the same time, because they would do so in random order.
func (s *servers) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d+time.Duration(s.waits.Add(1)%1000)*time.Microsecond)
}
