package api

import (
	"errors"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
	"weir/internal/access"
)

// keyObject is a key as /manage/v1 shows it.
type keyObject struct {
	ID          string              `json:"id"`
	Project     weir.ProjectID      `json:"project"`
	Kind        access.Kind         `json:"kind"`
	Name        string              `json:"name"`
	Masked      string              `json:"masked"`
	Permissions []access.Permission `json:"permissions"`
	Streams     []weir.StreamID     `json:"streams"`
	CreatedAt   weir.Time           `json:"created_at"`
	LastUsedAt  *weir.Time          `json:"last_used_at"`
	RevokeAt    *weir.Time          `json:"revoke_at"`
	RevokedAt   *weir.Time          `json:"revoked_at"`
	Key         string              `json:"key,omitempty"` // the key itself, only in the response to its creation
}

func objectOf(k access.Key) keyObject {
	return keyObject{k.ID, k.Project, k.Kind, k.Name, k.Masked, k.Permissions, k.Streams, k.CreatedAt, k.LastUsedAt, k.RevokeAt, k.RevokedAt, ""}
}

// keyList serves GET /manage/v1/keys: a page of the keys of one project or of all, newest first,
// revoked keys included.
func (c *call) keyList() error {
	project, given, ok := queryParameter(c.r.URL.RawQuery, "project")
	if given && (!ok || !weir.IsID(project)) {
		return errProjectParameter
	}
	if err := c.h.Access.CatchUp(c.r.Context()); err != nil {
		return err
	}
	p, err := pageOf(c.r.URL.RawQuery, "keys of "+project, c.h.Access.Keys(weir.ProjectID(project)), func(k *access.Key) place { return place{k.CreatedAt, k.ID} })
	if err != nil {
		return err
	}
	out := page[keyObject]{Data: []keyObject{}, HasMore: p.HasMore, NextCursor: p.NextCursor}
	for _, k := range p.Data {
		out.Data = append(out.Data, objectOf(k))
	}
	return c.answerObject(http.StatusOK, out)
}

var (
	errProjectParameter = &weir.Error{Code: weir.InvalidRequest, Message: "invalid project: send it once, as the id of a project"}
	errNoProject        = &weir.Error{Code: weir.InvalidRequest, Message: "invalid body: there is no project with this id"}
	errNoKey            = &weir.Error{Code: weir.NotFound, Message: "there is no key with this id, or it was revoked so long ago that it is forgotten"}
	errDemoKey          = &weir.Error{Code: weir.InvalidRequest, Message: "the demo key is built in and cannot be revoked"}
)

// keyCreate serves POST /manage/v1/keys. It creates a key and responds with 201 and the key. No
// other endpoint shows the key itself. If a request with the same token and Idempotency-Key created
// the key before, keyCreate responds with 200 and the same key. It refuses unknown members and an
// empty list of permissions or streams (400). For package access an empty list means that there is
// no restriction, so the key could do more than the program meant.
func (c *call) keyCreate() error {
	once, err := idempotencyKey(c.r.Header)
	if err != nil {
		return err
	}
	spec := access.KeySpec{Kind: access.Live}
	if err := c.object(func(member string, value jsontext.Value) (bool, error) { return setMember(&spec, member, value) }); err != nil {
		return err
	}
	if spec.Project == "" {
		return badBody("project is missing; send the id of a project")
	}
	var (
		k      access.Key
		secret access.Secret
		made   = true
	)
	if once == "" {
		k, secret, err = c.h.Access.CreateKey(c.r.Context(), spec)
	} else {
		token, _, fault := access.Bearer(c.r.Header["Authorization"])
		if fault != nil {
			return fault
		}
		k, secret, made, err = c.h.Access.CreateKeyOnce(c.r.Context(), spec, token, once)
	}
	if errors.Is(err, access.ErrNoProject) { // err is replaced, because its message repeats the id that the client sent
		return errNoProject
	}
	if err != nil {
		return err
	}
	object, status := objectOf(k), http.StatusOK
	object.Key = secret.Reveal()
	if made {
		status = http.StatusCreated
		c.note("key created", k.Masked+" "+k.ID+" "+k.Name)
	}
	return c.answerObject(status, object)
}

// setMember sets the field of spec that a member of the body names. The result known is false if
// there is no such member.
func setMember(spec *access.KeySpec, member string, value jsontext.Value) (known bool, err error) {
	switch member {
	case "project":
		s, ok := text(value)
		if !ok || !weir.IsID(s) {
			return true, badBody("project must be the id of a project")
		}
		spec.Project = weir.ProjectID(s)
	case "kind":
		s, ok := text(value)
		if spec.Kind = access.Kind(s); !ok || spec.Kind != access.Live && spec.Kind != access.Test {
			return true, badBody(`kind must be "live" or "test"`)
		}
	case "name":
		s, ok := text(value)
		if spec.Name = s; !ok {
			return true, badBody("name must be a string of at most 128 characters")
		}
	case "permissions":
		all, ok := list(value)
		for _, s := range all {
			p := access.Permission(s)
			ok = ok && (p == access.Read || p == access.Publish || p == access.Manage)
			spec.Permissions = append(spec.Permissions, p)
		}
		if !ok || len(all) == 0 {
			return true, badBody(`permissions must be an array of "read", "publish" and "manage" with at least one of them; leave it out for all`)
		}
	case "streams":
		all, ok := list(value)
		for _, s := range all {
			ok = ok && weir.IsID(s)
			spec.Streams = append(spec.Streams, weir.StreamID(s))
		}
		if !ok || len(all) == 0 {
			return true, badBody("streams must be an array of one or more stream ids; leave it out for all streams of the project")
		}
	case "revoke_after":
		fits, err := parseInteger(member, value, 1, access.MaxRevokeAfter, &spec.RevokeAfter)
		if err == nil && !fits {
			err = badBody("revoke_after must be from 1 to 31536000 seconds")
		}
		return true, err
	default:
		return false, nil
	}
	return true, nil
}

// keyRevoke serves POST /manage/v1/keys/{id}/revoke. It revokes a key and responds with 200 and the
// key. If the key is revoked already, nothing changes. If there is no such key, the response is 404
// not_found.
func (c *call) keyRevoke() error {
	if c.route.key == access.DemoKeyID {
		return errDemoKey
	}
	before, known := c.h.Access.Key(c.route.key)
	k, err := c.h.Access.Revoke(c.r.Context(), c.route.key)
	if err != nil {
		if code(err) == weir.NotFound { // err is replaced, because its message repeats the id that the client sent
			return errNoKey
		}
		return err
	}
	if !known || before.RevokedAt == nil {
		c.note("key revoked", k.Masked+" "+k.ID+" "+k.Name)
	}
	return c.answerObject(http.StatusOK, objectOf(k))
}
