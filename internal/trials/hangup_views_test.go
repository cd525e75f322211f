package trials

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"weir/internal/contract"
)

// view is everything that the server says about a subject.
type view struct {
	exists   bool // GET finds the stream, or the list of keys or projects contains the subject
	name     string
	cursor   int64
	stored   int64
	closed   bool
	revoked  bool
	accepted bool // requests with the key are accepted; false if the test does not know the key
}

// named is a key or a project in a list.
type named struct {
	ID, Name  string
	RevokedAt any `json:"revoked_at"`
}

// projects lists the projects.
func (h *hangup) projects() (all []named) {
	h.Helper()
	h.decode(h.want(h.admin, hungRequest{"GET", "/projects", "", nil}, 200), &all)
	return all
}

// observe asks the server about all subjects, each in several ways. All answers about one subject
// must agree.
func (h *hangup) observe() map[*subject]view {
	h.Helper()
	listed := map[string]contract.Stream{} // by id, and by the names of streams that were created through /ds
	for cursor, more := "", true; more; {
		var page struct {
			Data       []contract.Stream
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		h.decode(h.want(h.api, hungRequest{"GET", "/v1/streams?limit=100" + cursor, "", nil}, 200), &page)
		for _, s := range page.Data {
			listed[s.ID], listed[s.Name] = s, s
		}
		cursor, more = "&cursor="+page.NextCursor, page.HasMore
	}
	var keys []named
	h.decode(h.want(h.admin, hungRequest{"GET", "/keys?project=a", "", nil}, 200), &keys)
	projects := h.projects()
	all := map[*subject]view{}
	for _, s := range h.subjects {
		switch s.kind.about {
		case "stream":
			all[s] = h.observeStream(s, listed[s.name])
		case "key":
			v := h.observeListed(s, keys)
			if s.secret != "" && v.accepted == v.revoked {
				h.Errorf("%s: the key is accepted: %v, revoked: %v", s, v.accepted, v.revoked)
			}
			all[s] = v
		case "project":
			v := h.observeListed(s, projects)
			if s.secret != "" && v.accepted != v.exists {
				h.Errorf("%s: the key is accepted: %v, its project exists: %v", s, v.accepted, v.exists)
			}
			all[s] = v
		}
	}
	return all
}

// observeStream asks about a stream. The parameter listed is what the list of streams says about it.
func (h *hangup) observeStream(s *subject, listed contract.Stream) view {
	h.Helper()
	var is contract.Stream
	if s.kind.name == "durable create" {
		status, _ := h.wantOne(h.api, hungRequest{"HEAD", "/ds/" + s.name, "", nil}, 200, 404)
		if is = listed; (status == 200) != (is.ID != "") {
			h.Errorf("%s: HEAD gets %d, the list has the stream: %v", s, status, is.ID != "")
		}
	} else {
		h.decode(h.want(h.api, hungRequest{"GET", "/v1/streams/" + s.name, "", nil}, 200, 404), &is)
	}
	if is != listed {
		h.Errorf("%s: GET returns %+v, the list has %+v", s, is, listed)
	}
	v := view{exists: is.ID != "", name: is.Name, cursor: is.Cursor, stored: is.BytesStored, closed: is.Closed}
	want := v
	switch s.kind.name {
	case "publish", "publish at 1", "durable append":
		want.exists, want.cursor = true, 1
	case "durable create":
		if v.exists {
			want.cursor = 1
		}
	case "close", "durable close":
		want.exists, want.closed = true, s.stored
	}
	if v != want && !s.examined {
		h.Errorf("%s: the stream is %+v, want %+v", s, v, want)
	}
	return v
}

// observeListed looks up a key or a project in a list.
func (h *hangup) observeListed(s *subject, list []named) (v view) {
	h.Helper()
	n := 0
	for _, k := range list {
		if k.ID == s.id || s.id == "" && k.Name == s.name {
			v.exists, v.name, v.revoked = true, k.Name, k.RevokedAt != nil
			n++
		}
	}
	if n > 1 {
		h.Errorf("%s: the list has it %d times", s, n)
	}
	v.accepted = s.secret != "" && h.accepts(s.secret)
	return v
}

// accepts tells whether the server accepts a key.
func (h *hangup) accepts(secret string) bool {
	h.Helper()
	_, status, b := h.api.ask(context.Background(), "GET", "/v1/streams", "", http.Header{"Authorization": {"Bearer " + secret}})
	if status == 401 && !strings.Contains(string(b), "key_revoked") {
		h.Errorf("the key is refused for a reason other than key_revoked: %s", b)
	}
	return status == 200
}

// exam changes a subject in every possible way, and checks that each response fits the state that
// observe found.
func (h *hangup) exam(s *subject, v view) {
	h.Helper()
	switch {
	case s.kind.name == "durable create":
		h.examDurable(s, v)
	case s.kind.about == "stream":
		h.examStream(s, v)
	case s.kind.about == "project":
		h.examProject(s, v)
	case s.id != "": // a key whose id is known
		h.want(h.admin, hungRequest{"POST", "/keys/" + s.id + "/revoke", "", nil}, 200)
		if h.accepts(s.secret) {
			h.Errorf("%s: the key is accepted after it was revoked", s)
		}
	}
	s.examined = true
}

func (h *hangup) examStream(s *subject, v view) {
	h.Helper()
	stream, create := "/v1/streams/"+s.name, hungRequest{"POST", "/v1/streams", fmt.Sprintf(`{"name":"exam","id":%q}`, s.name), nil}
	if !v.exists {
		h.want(h.api, publishRequest(h, s), 404)
		h.want(h.api, hungRequest{"DELETE", stream, "", nil}, 404)
		h.want(h.api, create, 201)
		h.want(h.api, publishRequest(h, s), 202)
		h.want(h.api, hungRequest{"DELETE", stream, "", nil}, 204)
		return
	}
	h.want(h.api, create, 409)
	published := 202
	switch {
	case v.closed:
		published = 409
	case v.cursor > 0 && s.kind.name != "publish at 1" && s.kind.name != "durable append": // the stream's first batch has the same idempotency key
		published = 200
	}
	h.want(h.api, publishRequest(h, s), published)
	h.want(h.api, hungRequest{"DELETE", stream, "", nil}, 204)
	h.want(h.api, hungRequest{"GET", stream, "", nil}, 404)
	h.want(h.api, create, 201)
}

func (h *hangup) examDurable(s *subject, v view) {
	h.Helper()
	path := "/ds/" + s.name
	if !v.exists {
		h.want(h.api, hungRequest{"POST", path, `[1]`, nil}, 404)
		h.want(h.api, hungRequest{"DELETE", path, "", nil}, 404)
		h.want(h.api, durableCreate(h, s), 201)
		h.want(h.api, hungRequest{"DELETE", path, "", nil}, 204)
		return
	}
	h.want(h.api, durableCreate(h, s), 200)
	h.want(h.api, hungRequest{"POST", path, `[1]`, nil}, 204)
	h.want(h.api, hungRequest{"DELETE", path, "", nil}, 204)
	h.want(h.api, hungRequest{"HEAD", path, "", nil}, 404)
	h.want(h.api, durableCreate(h, s), 201)
}

// examProject creates projects with the names of a project. A name that is in use gets the existing
// project.
func (h *hangup) examProject(s *subject, v view) {
	h.Helper()
	for _, name := range []string{s.name, renamed + s.name} {
		status := 201
		if v.exists && v.name == name || s.examined {
			status = 200
		}
		h.want(h.api, h.projectNamed(name), status)
	}
}
