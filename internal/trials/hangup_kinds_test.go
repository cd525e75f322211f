package trials

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"

	"weir/internal/contract"
)

// hungRequest is a request on which a client hangs up, or one that is sent again. The header is added to
// the usual header fields.
type hungRequest struct {
	method, path, body string
	header             http.Header
}

// subject is the stream, key or project that a request was about when its client hung up.
type subject struct {
	kind   *kind
	by     string // the transport
	name   string // id of the stream, or name of the key or project
	id     string // id of the key or project, if it is known
	secret string // the key, if it is known
	cookie string // of the dashboard

	stored   bool // the request of the client that hung up was carried out; the function settle of some kinds sets this
	examined bool // the method exam has changed the subject
}

func (s *subject) String() string { return s.kind.name + " over " + s.by + ", " + s.name }

// kind is a kind of request that changes something.
type kind struct {
	name    string
	about   string // "stream", "key" or "project"
	admin   bool   // the request is sent over the admin socket
	prepare func(h *hangup, s *subject, r *rand.Rand)
	request func(h *hangup, s *subject) hungRequest
	settle  func(h *hangup, s *subject)   // nil if nothing can be in flight when the connection is closed
	done    func(s *subject, v view) bool // tells whether the server carried out the request; if nil, settle has found it out
}

func (k *kind) String() string { return k.name }

// carriedOut tells whether the server carried out the request of the client that hung up.
func (s *subject) carriedOut(v view) bool {
	if s.kind.done == nil {
		return s.stored
	}
	return s.kind.done(s, v)
}

func exists(_ *subject, v view) bool  { return v.exists }
func isGone(_ *subject, v view) bool  { return !v.exists }
func revoked(_ *subject, v view) bool { return v.revoked }
func isNamed(name string) func(*subject, view) bool {
	return func(_ *subject, v view) bool { return v.name == name }
}

const renamed = "renamed " // a renamed project has its old name after this text

var kinds = []*kind{
	{name: "create", about: "stream", done: exists, request: createRequest},
	{name: "delete", about: "stream", done: isGone, prepare: newStreamOrLog, request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"DELETE", "/v1/streams/" + s.name, "", nil}
	}},
	{name: "publish", about: "stream", prepare: newStream, settle: again(202, 200), request: publishRequest},
	{name: "publish at 1", about: "stream", prepare: newStream, settle: again(202, 200), request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"POST", contract.SeqPath(s.name, 1), `{"events":["hang up"]}`, nil}
	}},
	{name: "change", about: "stream", done: isNamed("changed"), prepare: newStreamOrLog, request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"PATCH", "/v1/streams/" + s.name, `{"name":"changed"}`, nil}
	}},
	{name: "close", about: "stream", prepare: newStream, settle: isClosed, request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"POST", "/v1/streams/" + s.name + "/close", "", nil}
	}},
	{name: "durable create", about: "stream", done: exists, request: durableCreate},
	{name: "durable append", about: "stream", prepare: newStream, settle: again(200, 204), request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"POST", "/ds/" + s.name, `["hang up"]`, http.Header{"Producer-Id": {"p"}, "Producer-Epoch": {"0"}, "Producer-Seq": {"0"}}}
	}},
	{name: "durable close", about: "stream", prepare: newStream, settle: isClosed, request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"POST", "/ds/" + s.name, "", http.Header{"Stream-Closed": {"true"}}}
	}},
	{name: "durable delete", about: "stream", done: isGone, prepare: newStreamOrLog, request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"DELETE", "/ds/" + s.name, "", nil}
	}},
	{name: "new key", about: "key", admin: true, done: exists, request: func(_ *hangup, s *subject) hungRequest { return keyRequest("a", s) }},
	{name: "revoke", about: "key", admin: true, done: revoked, prepare: newKey, request: func(_ *hangup, s *subject) hungRequest {
		return hungRequest{"POST", "/keys/" + s.id + "/revoke", "", nil}
	}},
	{name: "new managed key", about: "key", settle: keyAgain, request: managedKey},
	{name: "managed revoke", about: "key", done: revoked, prepare: newKey, request: func(h *hangup, s *subject) hungRequest {
		return hungRequest{"POST", "/manage/v1/keys/" + s.id + "/revoke", "", h.managing()}
	}},
	{name: "new project", about: "project", done: exists, request: managedProject},
	{name: "rename project", about: "project", prepare: newProject, request: func(_ *hangup, s *subject) hungRequest {
		return s.form("/dashboard/projects/"+s.id, renamed+s.name)
	}, done: func(s *subject, v view) bool { return v.name == renamed+s.name }},
	{name: "delete project", about: "project", prepare: newProject, done: isGone, request: func(_ *hangup, s *subject) hungRequest {
		return s.form("/dashboard/projects/"+s.id+"/delete", s.name)
	}},
}

func createRequest(_ *hangup, s *subject) hungRequest {
	return hungRequest{"POST", "/v1/streams", fmt.Sprintf(`{"name":"hang up","id":%q}`, s.name), nil}
}

func publishRequest(_ *hangup, s *subject) hungRequest {
	return hungRequest{"POST", contract.NextPath(s.name), `{"events":["hang up"]}`, nil}
}

// durableCreate creates a stream whose id is not s.name, but its name is.
func durableCreate(_ *hangup, s *subject) hungRequest {
	return hungRequest{"PUT", "/ds/" + s.name, `["hang up"]`, nil}
}

func keyRequest(project string, s *subject) hungRequest {
	return hungRequest{"POST", "/keys", fmt.Sprintf(`{"project":%q,"kind":"live","name":%q}`, project, s.name), nil}
}

func managedKey(h *hangup, s *subject) hungRequest {
	header := h.managing()
	header.Set("Idempotency-Key", s.name)
	return hungRequest{"POST", "/manage/v1/keys", fmt.Sprintf(`{"project":%q,"name":%q}`, h.project, s.name), header}
}

func managedProject(h *hangup, s *subject) hungRequest { return h.projectNamed(s.name) }

func (h *hangup) projectNamed(name string) hungRequest {
	return hungRequest{"POST", "/manage/v1/projects", fmt.Sprintf(`{"name":%q}`, name), h.managing()}
}

// managing returns the header field of requests under /manage/v1.
func (h *hangup) managing() http.Header { return http.Header{"Authorization": {"Bearer " + h.token}} }

// form returns a request that sends a form of the dashboard.
func (s *subject) form(path, name string) hungRequest {
	return hungRequest{"POST", path, url.Values{"name": {name}}.Encode(), http.Header{"Cookie": {s.cookie}, "Content-Type": {"application/x-www-form-urlencoded"}}}
}

func newStream(h *hangup, s *subject, _ *rand.Rand) { h.want(h.api, createRequest(h, s), 201) }

// newStreamOrLog creates a stream. It sometimes publishes a batch, so that the server has the
// stream's log open.
func newStreamOrLog(h *hangup, s *subject, r *rand.Rand) {
	newStream(h, s, r)
	if r.IntN(2) == 0 {
		h.want(h.api, publishRequest(h, s), 202)
	}
}

func newKey(h *hangup, s *subject, _ *rand.Rand) { h.newKeyOf("a", s) }

// newKeyOf creates a key.
func (h *hangup) newKeyOf(project string, s *subject) {
	var made struct{ ID, Key string }
	h.decode(h.want(h.admin, keyRequest(project, s), 200), &made)
	s.id, s.secret = made.ID, made.Key
}

// newProject creates a project with a key.
func newProject(h *hangup, s *subject, _ *rand.Rand) {
	var made struct{ ID string }
	h.decode(h.want(h.api, managedProject(h, s), 201), &made)
	h.newKeyOf(s.name, s)
	s.id = made.ID
}

// again returns a function that publishes the same batch again. The server must store it once. The
// status of the response is first if the client that hung up had no success, and repeated otherwise.
func again(first, repeated int) func(*hangup, *subject) {
	return func(h *hangup, s *subject) {
		status, _ := h.wantOne(h.api, s.kind.request(h, s), first, repeated)
		s.stored = status == repeated
	}
}

// keyAgain creates the same key again, and learns the key itself from the response.
func keyAgain(h *hangup, s *subject) {
	var made struct{ ID, Key string }
	status, b := h.wantOne(h.api, managedKey(h, s), 201, 200)
	h.decode(b, &made)
	s.stored, s.id, s.secret = status == 200, made.ID, made.Key
}

// isClosed publishes a batch, which the server refuses if the stream was closed.
func isClosed(h *hangup, s *subject) {
	status, _ := h.wantOne(h.api, publishRequest(h, s), 202, 409)
	s.stored = status == 409
}
