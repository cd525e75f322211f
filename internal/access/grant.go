package access

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"weir"
)

// Grant is an authenticated caller: a key, or whoever reads the demo without one. It is shared by all requests of its
// key and costs nothing to hold. What a key may do never changes; it can only end.
type Grant struct {
	id       string
	project  weir.ProjectID
	kind     Kind
	can      permissions
	streams  map[weir.StreamID]struct{} // nil: not confined
	demo     bool                       // the demo key, or nobody
	demoOpen bool                       // the demo is on: its stream may be read by everybody

	ended   chan struct{}
	ending  sync.Once
	used    atomic.Int64 // weir.Time of the last use
	window  counter
	tallied uint64        // of taken: what other nodes were told of
	taken   atomic.Uint64 // requests that were counted; beside the window, whose cache line the request has anyway
}

// permissions are a set.
type permissions uint8

const (
	canRead permissions = 1 << iota
	canPublish
	canManage
)

// bit is the place of a permission in the set; none for a permission that this version does not know.
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

// Action is something that a caller wants to do with streams.
type Action uint8

// The actions. Zero is not one.
const (
	ReadStream   Action = iota + 1 // the object, the cursor, batches, a subscription
	PublishBatch                   // also under a sequence of the client's
	DeleteStream
	CreateStream
	ListStreams
)

// Project is the project of the caller: where it creates and lists.
func (g *Grant) Project() weir.ProjectID { return g.project }

// KeyID is the id of the caller's key; DemoKeyID for the demo key, empty without a key.
func (g *Grant) KeyID() string { return g.id }

// Kind is that of the caller's key.
func (g *Grant) Kind() Kind { return g.kind }

// Demo tells whether the caller is the demo key or has no key: both may read the demo stream and nothing else.
func (g *Grant) Demo() bool { return g.demo }

// Ended is closed when the key is revoked (D18). That of a demo caller never is.
func (g *Grant) Ended() <-chan struct{} { return g.ended }

// Allows tells whether the scope of the caller has this permission on this stream of its own project (D20): what a list
// shows is the streams of Project for which Allows(Read, id) holds.
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

// May decides about an action on a stream that belongs to owner: nil or a *weir.Error.
//
// To create, stream is the id that was supplied, or empty; to list it is empty; owner is not looked at for both. What is
// listed is further held to Allows. The demo stream may be read by everybody and changed by nobody (D22), and its id is
// taken whether or not the demo is on. Refusals are ProjectForbidden, MissingAPIKey for a caller without a key, and
// StreamNameTaken for creating the demo stream.
func (g *Grant) May(action Action, stream weir.StreamID, owner weir.ProjectID) error {
	if action == ReadStream && g.demoOpen && stream == DemoStream && owner == DemoProject {
		return nil
	}
	if g.demo {
		return g.mayDemo(action)
	}
	if stream == DemoStream && (action == PublishBatch || action == DeleteStream) {
		return forbidden("the demo stream can only be read")
	}
	if owner != g.project && action != CreateStream && action != ListStreams {
		return forbidden("this key belongs to another project than the stream %s", stream)
	}
	need := action.needs()
	if !g.has(need) {
		return forbidden("this key lacks the permission %q; it has: %s", need, g.can)
	}
	if action == CreateStream && stream == DemoStream {
		return weir.Errorf(weir.StreamNameTaken, "the id %s is that of the demo stream", stream)
	}
	if action == ListStreams || g.reaches(stream) {
		return nil
	}
	if stream == "" {
		return forbidden("this key is confined to certain streams and may create only those: supply an id out of its list")
	}
	return forbidden("this key is confined to certain streams, and %s is none of them", stream)
}

// mayDemo decides for a demo caller about everything but reading the demo stream.
func (g *Grant) mayDemo(action Action) error {
	if g.id == "" {
		return weir.Errorf(weir.MissingAPIKey, "without a key only the demo stream can be read")
	}
	if action == ListStreams {
		return nil
	}
	return forbidden("the demo key can read the demo stream %s and do nothing else", DemoStream)
}

// needs is the permission for an action; none that anybody has for what is no action.
func (a Action) needs() Permission {
	switch a {
	case ReadStream, ListStreams:
		return Read
	case PublishBatch:
		return Publish
	case DeleteStream, CreateStream:
		return Manage
	}
	return ""
}

func forbidden(format string, args ...any) error {
	return weir.Errorf(weir.ProjectForbidden, format, args...)
}

// String lists the permissions.
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

// end closes Ended, once.
func (g *Grant) end() { g.ending.Do(func() { close(g.ended) }) }

// over tells whether the grant was ended.
func (g *Grant) over() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// useGrain is how exact the last use is. Coarser than a request, so that busy cores do not fight over the word.
const useGrain = weir.Time(1000)

// use notes a use at t, which is never earlier than the one before.
func (g *Grant) use(t weir.Time) {
	for {
		last := g.used.Load()
		if int64(t) <= last || g.used.CompareAndSwap(last, int64(t)) {
			return
		}
	}
}

func (g *Grant) lastUsed() weir.Time { return weir.Time(g.used.Load()) }

// String names the caller for logs, without anything secret.
func (g *Grant) String() string {
	if g.id == "" {
		return "no key"
	}
	return "key " + g.id
}

// GoString is String.
func (g *Grant) GoString() string { return g.String() }

// LogValue groups the ids of the key and its project.
func (g *Grant) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", g.id), slog.String("project", string(g.project)))
}
