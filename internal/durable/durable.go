// Package durable serves the Durable Streams protocol under /ds. A path there names a stream of the
// caller's project: its id is a hash of the project and the path. So a batch that is written through
// /ds can be read through /v1, and the other way round (docs/manual/durable.md).
//
// The package only translates. Package stream has the rules about order, repeated appends of
// producers, and closing. The hub ends the lifetimes of streams. Package api checks keys and rate
// limits, and sets the header fields that all responses have.
package durable

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/bits"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
)

// Prefix is the path under which the protocol is served.
const Prefix = "/ds/"

// Options configure a [Handler]. Hub, Access and API are required.
type Options struct {
	Hub    *hub.Hub
	Access *access.Access
	API    *api.Handler

	Open     string           // name of a project that callers without a key may use; empty if all callers need a key
	LongPoll time.Duration    // how long a read waits for data; 0 means 20 s
	Now      func() time.Time // the clock by which the hub expires streams; default time.Now
}

// Handler serves everything under /ds.
type Handler struct {
	Options
	audiences audiences
	filling   sync.Map // the ids of streams whose first content this process is storing
}

// New returns a handler. It holds no resources and needs no closing.
func New(o Options) *Handler {
	if o.LongPoll == 0 {
		o.LongPoll = 20 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Handler{Options: o}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.API.Visit(w, r, h.open(), h.visit)
}

// ServeLater begins to answer a request in an event loop, and never waits. It takes only a PUT
// without a body, which usually creates an empty stream.
func (h *Handler) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	if r.Method != http.MethodPut || r.ContentLength != 0 {
		return false, false
	}
	return h.API.VisitLater(w, r, h.open(), h.visit)
}

// open returns the permissions of callers without a key, or nil if all callers need a key.
func (h *Handler) open() *access.Grant {
	if h.Open == "" {
		return nil
	}
	return h.Access.OpenGrant(h.Open)
}

func (h *Handler) visit(v *api.Visit) error {
	c := &call{Visit: v, h: h, r: v.Request()}
	path, ok := strings.CutPrefix(c.r.URL.Path, Prefix)
	if !ok || !validPath(path) {
		return weir.Errorf(weir.NotFound, "the path does not name a stream: it is empty, longer than %d bytes, or begins with %s", maxPath, reserved)
	}
	c.path, c.id = path, h.idOf(v.Grant().Project(), path)
	return c.answer()
}

// answer serves the request. It serves the request a second time if this node did not know the
// latest state of the stream. After a call of Wait, another goroutine uses the fields of c, so
// answer must not read them.
func (c *call) answer() error {
	err := c.serve()
	if !isNotFound(err) || !c.found {
		return err
	}
	// Another node may have deleted, replaced or completed the stream. CatchUp tells this node about
	// that, so serve can then give the right answer. A node that cannot catch up must not say that
	// there is no stream.
	if err := c.h.Hub.CatchUp(c.r.Context()); err != nil {
		return err
	}
	return c.serve()
}

// call is one request.
type call struct {
	*api.Visit
	h     *Handler
	r     *http.Request
	path  string
	id    weir.StreamID
	found bool // this node knew a stream of this id when the request began

	body    []byte // the body of the request
	hasBody bool   // content() has read the body
}

// serve serves the request by its method.
func (c *call) serve() error {
	switch c.r.Method {
	case http.MethodPut:
		return c.create()
	case http.MethodPost:
		return c.append()
	case http.MethodGet:
		return c.read()
	case http.MethodHead:
		return c.head()
	case http.MethodDelete:
		return c.remove()
	}
	c.Set("Allow", "GET, HEAD, PUT, POST, DELETE, OPTIONS")
	return weir.Errorf(weir.MethodNotAllowed, "the protocol has no such method")
}

// content returns the body of the request.
func (c *call) content() ([]byte, error) {
	if c.hasBody {
		return c.body, nil
	}
	body, err := c.Body()
	c.body, c.hasBody = body, err == nil
	return body, err
}

func isNotFound(err error) bool {
	var known *weir.Error
	return errors.As(err, &known) && known.Code == weir.StreamNotFound
}

const (
	maxPath  = 1024
	reserved = "__ds" // in the protocol, the paths of subscriptions begin with this part; Weir does not serve them
)

func validPath(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return path != "" && len(path) <= maxPath && first != reserved
}

// idOf returns the id of the stream that a path names: the path itself if it is the id of a stream,
// otherwise a hash of project and path.
func (h *Handler) idOf(project weir.ProjectID, path string) weir.StreamID {
	if weir.IsID(path) {
		if s, err := h.Hub.Stream(weir.StreamID(path)); err == nil && s.Project == project {
			return s.ID
		}
	}
	sum := sha256.Sum256([]byte(string(project) + "\x00" + path))
	high, low := binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])
	var id [22]byte
	for i := len(id) - 1; i >= 0; i-- { // divides the first 128 bits of the hash by 62
		var digit uint64
		high, digit = high/62, high%62
		low, digit = bits.Div64(digit, low, 62)
		id[i] = weir.Base62Alphabet[digit]
	}
	return weir.StreamID(id[:])
}

// target is a stream and its attributes.
type target struct {
	*hub.Stream
	attributes
}

// find returns the stream of the request. If the result ok is false and err is nil, find has
// already answered with 410, because the stream was deleted and has forks. A stream that is still
// being created does not exist yet for clients (404).
func (c *call) find(action access.Action) (t target, ok bool, err error) {
	s, err := c.Stream(c.id, action)
	if err != nil {
		return t, false, err
	}
	c.found, t = true, target{s, attributesOf(s)}
	switch {
	case t.Pending:
		return t, false, weir.Errorf(weir.StreamNotFound, "the stream is still being created")
	case t.Gone && !c.h.referenced(t):
		_ = c.h.collect(c.r.Context(), t) // the error can be ignored: the next request to the stream calls collect again
		return t, false, weir.Errorf(weir.StreamNotFound, "the stream was deleted")
	case t.Gone:
		return t, false, c.Refuse(http.StatusGone, weir.StreamNotFound, "the stream was deleted, and forks of it exist")
	}
	return t, true, nil
}

// head serves HEAD: it describes a stream in header fields. The request does not count as a use of
// the stream (D37).
func (c *call) head() error {
	t, ok, err := c.find(access.ReadStream)
	if !ok {
		return err
	}
	_, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	c.describe(e)
	if t.TTL != nil {
		c.Set("Stream-TTL", number(*t.TTL))
	}
	if t.Expires != "" {
		c.Set("Stream-Expires-At", t.Expires)
	}
	return c.Send(http.StatusOK, t.Type, nil)
}

// describe sets the header fields that say where a stream ends.
func (c *call) describe(e hub.Extent) {
	c.Set("Stream-Next-Offset", offset(e.Tail))
	if e.Ended {
		c.Set("Stream-Closed", "true")
	}
}
