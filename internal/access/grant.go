package access

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"weir"
)

// Grant is an authenticated caller: a key, a management token, or a client without a key that reads
// the demo or uses the project of --ds-open. All
// requests with the same key share one Grant. The permissions of a Grant never change, but the
// Grant ends when its key is revoked. Its methods are safe for concurrent use.
type Grant struct {
	id       string
	project  weir.ProjectID
	kind     Kind
	can      permissions
	streams  map[weir.StreamID]struct{} // the only streams that the caller may use; nil if it may use all streams of its project
	demo     bool                       // the caller uses the demo key, or no key
	demoOpen bool                       // the demo is on, so every caller may read the demo stream
	due      atomic.Int64               // when the key revokes itself, a weir.Time of the clock Access.steady; 0 if the key does not revoke itself

	ended   chan struct{}
	ending  sync.Once
	used    atomic.Int64 // weir.Time of the last use
	window  counter
	tallied uint64        // number of requests already reported to other nodes; never above g.taken
	taken   atomic.Uint64 // number of requests; next to the field window, because a request touches that cache line anyway
	work    work
}

// permissions is a set of permissions.
type permissions uint8

const (
	canRead permissions = 1 << iota
	canPublish
	canManage
)

// bit returns the set with only this permission. For a permission that this version does not know,
// the set is empty.
func (p Permission) bit() permissions {
	switch p {
	case Read:
		return canRead
	case Publish:
		return canPublish
	case Manage:
		return canManage
	}
	return 0
}

func newGrant(k *Key, demoOpen bool) *Grant {
	g := &Grant{id: k.ID, project: k.Project, kind: k.Kind, demoOpen: demoOpen, ended: make(chan struct{})}
	for _, p := range k.Permissions {
		g.can |= p.bit()
	}
	if len(k.Streams) > 0 {
		g.streams = make(map[weir.StreamID]struct{}, len(k.Streams))
		for _, id := range k.Streams {
			g.streams[id] = struct{}{}
		}
	}
	return g
}

// Action is something that a caller can do with streams.
type Action uint8

// The actions. The zero value is not valid.
const (
	ReadStream   Action = iota + 1 // read the stream object, the cursor or batches, or subscribe
	PublishBatch                   // publish a batch, with or without a sequence number
	DeleteStream
	CloseStream
	ChangeStream // change the settings of the stream
	CreateStream
	ListStreams
)

// Project returns the caller's project, in which it creates and lists streams.
func (g *Grant) Project() weir.ProjectID { return g.project }

// KeyID returns the id of the caller's key: DemoKeyID for the demo key, empty without a key.
func (g *Grant) KeyID() string { return g.id }

// Kind returns the kind of the caller's key. It is Management for a management token.
func (g *Grant) Kind() Kind { return g.kind }

// Demo reports whether the caller uses the demo key or no key. Such a caller may read the demo
// stream and nothing else.
func (g *Grant) Demo() bool { return g.demo }

// Ended returns a channel that is closed when the key is revoked (D18) or deleted. The channel of a
// demo caller is never closed.
func (g *Grant) Ended() <-chan struct{} { return g.ended }

// Allows reports whether the caller has this permission for this stream of its own project (D20). A
// list shows the streams of Project for which Allows(Read, id) is true.
func (g *Grant) Allows(p Permission, stream weir.StreamID) bool {
	return g.has(p) && g.reaches(stream)
}

func (g *Grant) has(p Permission) bool { return g.can&p.bit() != 0 }

func (g *Grant) reaches(stream weir.StreamID) bool {
	if g.streams == nil {
		return true
	}
	_, ok := g.streams[stream]
	return ok
}

// May decides whether the caller may perform an action on a stream. The parameter owner is the
// project of that stream. The result is nil or a *weir.Error: ProjectForbidden, MissingAPIKey for a
// caller without a key, or StreamNameTaken for creating the demo stream.
//
// For CreateStream, the parameter stream is the id in the request, or empty. For ListStreams it is
// empty. These two actions ignore the parameter owner. Use Allows to filter the streams of a list.
// Every caller may read the demo stream, and no caller may change it (D22). The id of the demo
// stream is reserved even while the demo is off.
func (g *Grant) May(action Action, stream weir.StreamID, owner weir.ProjectID) error {
	if action == ReadStream && g.demoOpen && stream == DemoStream && owner == DemoProject {
		return nil
	}
	if g.demo {
		return g.mayDemo(action)
	}
	if stream == DemoStream && (action == PublishBatch || action == DeleteStream || action == CloseStream || action == ChangeStream) {
		return forbidden("the demo stream can only be read")
	}
	if owner != g.project && action != CreateStream && action != ListStreams {
		return forbidden("stream %s belongs to a different project than this key", stream)
	}
	need := action.needs()
	if !g.has(need) {
		return forbidden("this key lacks the permission %q; it has: %s", need, g.can)
	}
	if action == CreateStream && stream == DemoStream {
		return weir.Errorf(weir.StreamNameTaken, "the id %s is reserved for the demo stream", stream)
	}
	if action == ListStreams || g.reaches(stream) {
		return nil
	}
	if stream == "" {
		return forbidden("this key is confined to certain streams and can create only those: supply the id of one of them")
	}
	return forbidden("this key is confined to certain streams, and %s is not one of them", stream)
}

// mayDemo decides for a demo caller on every action other than reading the demo stream.
func (g *Grant) mayDemo(action Action) error {
	if g.id == "" {
		return weir.Errorf(weir.MissingAPIKey, "without a key only the demo stream can be read")
	}
	if action == ListStreams {
		return nil
	}
	return forbidden("the demo key can only read the demo stream, %s", DemoStream)
}

// needs returns the permission that an action requires. For an invalid action it returns a
// permission that no key has.
func (a Action) needs() Permission {
	switch a {
	case ReadStream, ListStreams:
		return Read
	case PublishBatch:
		return Publish
	case DeleteStream, CloseStream, ChangeStream, CreateStream:
		return Manage
	}
	return ""
}

func forbidden(format string, args ...any) error {
	return weir.Errorf(weir.ProjectForbidden, format, args...)
}

// String returns the permissions as a list.
func (p permissions) String() string {
	var names []string
	for _, q := range allPermissions {
		if p&q.bit() != 0 {
			names = append(names, string(q))
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// end closes the channel of Ended. It may be called more than once.
func (g *Grant) end() { g.ending.Do(func() { close(g.ended) }) }

// hasEnded reports whether the key was revoked or deleted.
func (g *Grant) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// useGrain is the precision of the last use, in milliseconds. With a finer precision, every request
// of a busy key would write to the same word of memory, and the CPU cores would contend for it.
const useGrain = weir.Time(1000)

// use records that the key was used at the time t, unless a later use is already recorded.
func (g *Grant) use(t weir.Time) {
	for {
		last := g.used.Load()
		if int64(t) <= last || g.used.CompareAndSwap(last, int64(t)) {
			return
		}
	}
}

func (g *Grant) lastUsed() weir.Time { return weir.Time(g.used.Load()) }

// Requests returns the number of requests of the key since the process started.
func (g *Grant) Requests() uint64 { return g.taken.Load() }

// String describes the caller for logs. It contains nothing secret.
func (g *Grant) String() string {
	switch {
	case g.id == "":
		return "no key"
	case g.kind == Management:
		return "management token " + g.id
	}
	return "key " + g.id
}

// GoString returns String, so that %#v prints nothing secret either.
func (g *Grant) GoString() string { return g.String() }

// LogValue returns a group with the ids of the key and its project.
func (g *Grant) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", g.id), slog.String("project", string(g.project)))
}
