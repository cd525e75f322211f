// Package nodes exchanges messages between the processes that share a store, which are called nodes.
// With these messages a node tells the others that it is alive, which versions it reads, what its
// clock says, and whether its server is full (Space). Packages above add data of their own.
package nodes

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// Options describe this process.
type Options struct {
	Store  string           // name of the store
	Now    func() time.Time // the clock of this node
	Reads  byte             // newest version of messages that this node reads
	Format uint32           // newest format of a store that this node reads
	// Removed reports whether a node was removed from the cluster.
	Removed func(name string) bool
	Logger  *slog.Logger
}

// Nodes is the list of processes that share a store, as far as this process receives their
// messages. Each process sends a message twice per second to show that it is alive, and up to 20
// times per second if it has data for the others. These messages are not stored and may get lost.
type Nodes struct {
	Options
	servers *wire.Client
	clock   clock
	lowest  atomic.Uint32 // see the method Common
	formats atomic.Uint32 // see the method Formats

	deaf func() // ends the subscription to the messages of other nodes
	quit chan struct{}
	work sync.WaitGroup

	mu     sync.Mutex
	self   Self
	heard  map[string]sign // the last sign of life of each other node
	since  time.Time       // when this node started to listen; zero before Join and after Leave
	skewed bool            // reportClock last logged that this node's clock is wrong
}

// New returns the nodes of a store. This process does not take part before it calls Join.
func New(servers *wire.Client, o Options) *Nodes {
	n := &Nodes{Options: o, servers: servers, heard: map[string]sign{}}
	n.clock.init(o.Now)
	n.lowest.Store(uint32(o.Reads))
	n.formats.Store(o.Format)
	return n
}

// sign is a sign of life of another node.
type sign struct {
	at     time.Time
	about  string // how the node last described itself
	reads  byte   // newest version of messages that the node reads
	stores uint32 // newest format of a store that the node reads
}

// Self describes a process that joins the nodes. Name must be unique among the nodes. Words and
// Hear are called from one goroutine each.
type Self struct {
	Name string
	// Words returns data for all other nodes, or nil if there is none. It is called at short
	// intervals.
	Words func() []byte
	// Hear receives what Words returned on another node.
	Hear func(words []byte)
	// About describes this node for Peers on all nodes, in one line. It is called twice per second,
	// and by Peers, from any goroutine. About may be nil.
	About func() string
}

// Peer is a node as another node knows it.
type Peer struct {
	Name   string
	Silent time.Duration // time since this node last heard the peer; 0 for this node itself
	Gone   bool          // the peer has been silent for so long that it does not count as present
	Ahead  time.Duration // by how much the clock of the peer is ahead of the median of all clocks
	About  string        // how the peer describes itself
}

const (
	// sayEvery is the interval at which a node sends data. A node without data sends an empty
	// message every stillEvery, to show that it is alive.
	sayEvery   = 50 * time.Millisecond
	stillEvery = 500 * time.Millisecond
	// goneAfter is how long a silent node still counts as present.
	goneAfter = 4 * stillEvery
	// missedFor is how long a silent node is remembered.
	missedFor = time.Hour

	// meetFor is how long Join waits for the first message of another node.
	meetFor = 2 * stillEvery

	// Header fields: the name of the node that sends a message, the time of its clock in
	// milliseconds since 1970, its description, the newest version of messages and the newest
	// format of a store that it reads, and a request that all nodes answer at once.
	speaker   = "Weir-Node"
	clockTime = "Weir-Clock"
	aboutNode = "Weir-About"
	reads     = "Weir-Reads"
	formats   = "Weir-Format"
	rollCall  = "Weir-Roll-Call"
)

// Join announces this process to the other nodes. Call Leave before closing the engine.
//
// Join returns when it has received a message of another node, or after a second if none arrives.
// So if there is another node, this node knows whether its clock is wrong (see the type clock) when
// Join returns.
func (n *Nodes) Join(self Self) error {
	n.mu.Lock()
	n.self, n.quit, n.since = self, make(chan struct{}), time.Now()
	n.mu.Unlock()
	var err error
	n.deaf, err = n.servers.Hear(n.Store+".nodes", n.hear)
	if err == nil {
		err = n.servers.Flush(wire.Timeout)
	}
	if err != nil {
		return err
	}
	n.say(nil, "", true)
	n.work.Go(n.announce)
	late := time.NewTimer(n.servers.Apart(meetFor))
	defer late.Stop()
	select {
	case <-n.clock.first:
	case <-late.C:
	}
	n.reportClock()
	return nil
}

// hear takes note of a message of another node.
func (n *Nodes) hear(m *nats.Msg) {
	from := m.Header.Get(speaker)
	if from == "" || from == n.self.Name || n.Removed(from) {
		return
	}
	n.mu.Lock()
	about := m.Header.Get(aboutNode)
	if about == "" {
		about = n.heard[from].about
	}
	n.heard[from] = sign{time.Now(), about, readsOf(m.Header), storesOf(m.Header)}
	n.agree()
	n.mu.Unlock()
	if ms, err := strconv.ParseInt(m.Header.Get(clockTime), 10, 64); err == nil {
		n.clock.hear(from, time.UnixMilli(ms), m.Header.Get(rollCall) != "")
	}
	if m.Header.Get(rollCall) != "" {
		n.say(nil, "", false)
	}
	if len(m.Data) > 0 {
		n.self.Hear(m.Data)
	}
}

// announce sends messages to the other nodes until this node leaves.
func (n *Nodes) announce() {
	tick := time.NewTicker(n.servers.Apart(sayEvery))
	defer tick.Stop()
	var last, described time.Time
	for {
		if b := n.self.Words(); b != nil || time.Since(last) >= stillEvery {
			last = time.Now()
			about := ""
			if n.self.About != nil && time.Since(described) >= stillEvery {
				about, described = n.self.About(), last
			}
			n.say(b, about, false)
			n.reportClock()
			n.mu.Lock()
			n.forget()
			n.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-n.quit:
		}
		select {
		case <-n.quit: // even if there is a tick too
			return
		default:
		}
	}
}

// say sends a message to all nodes. The message is lost if no server is connected.
func (n *Nodes) say(words []byte, about string, ask bool) {
	h := nats.Header{speaker: {n.self.Name}, clockTime: {strconv.FormatInt(n.Options.Now().UnixMilli(), 10)}, reads: {strconv.Itoa(int(n.Reads))}, formats: {strconv.Itoa(int(n.Format))}}
	if about != "" {
		h.Set(aboutNode, about)
	}
	if ask {
		h.Set(rollCall, "1")
	}
	n.servers.Say(&nats.Msg{Subject: n.Store + ".nodes", Data: words, Header: h})
}

// reportClock logs when this node's clock turns out to be wrong, and when it is right again.
func (n *Nodes) reportClock() {
	why := n.clock.fault()
	n.mu.Lock()
	changed := n.skewed != (why != nil)
	n.skewed = why != nil
	n.mu.Unlock()
	switch {
	case changed && why != nil:
		n.Logger.Error("this node accepts no writes", "error", why)
	case changed:
		n.Logger.Info("the clock of this node agrees with the other nodes again")
	}
}

// Leave ends the announcements. After Leave returns, no function of Self is called.
func (n *Nodes) Leave() {
	close(n.quit)
	n.work.Wait()
	n.deaf()
	n.mu.Lock()
	n.since = time.Time{}
	n.mu.Unlock()
}

// Names returns the present nodes, this one included, sorted.
func (n *Nodes) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := []string{n.self.Name}
	for name, s := range n.heard {
		if time.Since(s.at) < goneAfter {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Known returns the number of nodes that were present within the last hour, this one included. If it
// is more than the number of Names, a node is missing.
func (n *Nodes) Known() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
	return 1 + len(n.heard)
}

// forget forgets nodes that have been silent for long or were removed. The caller holds n.mu.
func (n *Nodes) forget() {
	maps.DeleteFunc(n.heard, func(name string, s sign) bool { return time.Since(s.at) >= missedFor || n.Removed(name) })
	n.agree()
}

// readsOf returns the newest version of messages that the sender of a message reads. The first
// releases of Weir did not announce it: the newest version that they can read is record.Tagged.
func readsOf(h nats.Header) byte {
	version, err := strconv.ParseUint(h.Get(reads), 10, 8)
	if err != nil {
		return record.Tagged
	}
	return byte(version)
}

// storesOf returns the newest format of a store that the sender of a message reads. Earlier
// versions of Weir do not announce it, and can read only the first format.
func storesOf(h nats.Header) uint32 {
	f, err := strconv.ParseUint(h.Get(formats), 10, 32)
	if err != nil {
		return 1
	}
	return uint32(f)
}

// agree determines the newest version and format that all nodes read. A node that is silent counts
// for as long as it is remembered, because it may come back with the same version. The caller holds
// n.mu.
func (n *Nodes) agree() {
	lowest, store := n.Reads, n.Format
	for _, s := range n.heard {
		lowest, store = min(lowest, s.reads), min(store, s.stores)
	}
	n.lowest.Store(uint32(lowest))
	n.formats.Store(store)
}

// Common returns the newest version of messages that all nodes read. A message of a newer version
// must not be written: an older node could not open the log any more.
func (n *Nodes) Common() byte { return byte(n.lowest.Load()) }

// Formats returns the newest format of a store that all nodes read.
func (n *Nodes) Formats() uint32 { return n.formats.Load() }

// Peers returns all nodes that were present within the last hour, this one included, in order of
// their names.
func (n *Nodes) Peers() []Peer {
	ahead := n.clock.aheads()
	self := Peer{Name: n.self.Name, Ahead: n.Ahead()}
	if n.self.About != nil {
		self.About = n.self.About()
	}
	all := []Peer{self}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
	for name, s := range n.heard {
		silent := time.Since(s.at)
		all = append(all, Peer{Name: name, Silent: silent, Gone: silent >= goneAfter, Ahead: ahead[name], About: s.about})
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// First reports whether this node should do the tasks that one node does on behalf of all nodes.
// When a node joins or leaves, First can be true on two nodes, or on none, for a moment. It is false
// if this process has not joined.
func (n *Nodes) First() bool {
	n.mu.Lock()
	since := n.since
	n.mu.Unlock()
	return !since.IsZero() && time.Since(since) >= goneAfter && n.servers.Connected() && n.Names()[0] == n.self.Name
}
