package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
)

// This file has the parts that the endpoints under /manage/v1 share (D36). Programs use these
// endpoints to manage projects and keys, with a management token. The responses have the header
// fields, error objects and rate limits of /v1. There is no CORS, because a management token must
// not be used in a browser.

// note records in the audit log that the caller has made a change.
func (c *call) note(what, detail string) {
	if record := c.h.Note(what); record != nil {
		record(c.r.Context(), c.grant.String(), c.client(), detail)
	}
}

// object reads a request body that is a JSON object, and calls the function member for each of its
// members. If that function returns false, the member is unknown, and the request is refused: a
// misspelt restriction of a key must not be ignored.
func (c *call) object(member func(name string, value jsontext.Value) (known bool, err error)) error {
	body, err := c.readObject()
	if err != nil {
		return err
	}
	return eachMember(body, func(name string, value jsontext.Value) error {
		known, err := member(name, value)
		if err == nil && !known {
			err = badBody("it has an unknown member; the API reference lists the members")
		}
		return err
	})
}

// list returns the strings of a JSON array, and false if the value is not an array of strings.
func list(value jsontext.Value) (all []string, ok bool) {
	if value.Kind() != '[' {
		return nil, false
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(value))
	d.ReadToken()
	for d.PeekKind() != ']' {
		element, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		s, ok := text(element)
		if !ok {
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

// answerObject sends an object as JSON.
func (c *call) answerObject(status int, object any) error {
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.answer(status, b)
}

// page is a page of a list under /manage/v1.
type page[T any] struct {
	Data       []T     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// place is the position of an object in a list. A list has the newest objects first. Objects that
// were created in the same millisecond are ordered by id.
type place struct {
	created weir.Time
	id      string
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(q.created, p.created), cmp.Compare(q.id, p.id))
}

// pageOf sorts a list, and returns the page that the query parameters limit and cursor ask for. A
// cursor is valid only for the list that it came from, which the parameter listName identifies.
func pageOf[T any](query, listName string, all []T, at func(*T) place) (page[T], error) {
	limit, err := parseLimit(query)
	if err != nil {
		return page[T]{}, err
	}
	slices.SortFunc(all, func(a, b T) int { return at(&a).compare(at(&b)) })
	if value, given, ok := queryParameter(query, "cursor"); given {
		after, valid := parsePlace(listName, value)
		if !ok || !valid {
			return page[T]{}, errPlace
		}
		first, _ := slices.BinarySearchFunc(all, after, func(a T, after place) int {
			if at(&a).compare(after) <= 0 {
				return -1
			}
			return 1
		})
		all = all[first:]
	}
	p := page[T]{Data: slices.Clone(all[:min(limit, len(all))])}
	if p.Data == nil {
		p.Data = []T{}
	}
	if p.HasMore = len(all) > limit; p.HasMore {
		next := at(&all[limit-1]).token(listName)
		p.NextCursor = &next
	}
	return p, nil
}

var errPlace = &weir.Error{Code: weir.InvalidRequest, Message: "invalid cursor: send it once, as the next_cursor of a page of the same list"}

// token returns a page token that contains the place. Like the tokens of pageToken, it ends with a
// hash that detects malformed tokens and tokens of another list.
func (p place) token(listName string) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.created))
	b = append(b, p.id...)
	sum := sha256.Sum256(append(b[:len(b):len(b)], "weir page token of "+listName...))
	return tokenText.EncodeToString(append(b, sum[:8]...))
}

func parsePlace(listName, token string) (p place, ok bool) {
	b, err := tokenText.DecodeString(token)
	if err != nil || len(b) < 16 {
		return place{}, false
	}
	p = place{weir.Time(binary.BigEndian.Uint64(b)), string(b[8 : len(b)-8])}
	return p, p.token(listName) == token
}

// projectList serves GET /manage/v1/projects: a page of the projects, newest first, without the
// project of the demo.
func (c *call) projectList() error {
	if err := c.h.Access.CatchUp(c.r.Context()); err != nil {
		return err
	}
	p, err := pageOf(c.r.URL.RawQuery, "projects", c.h.Access.Projects(), func(p *weir.Project) place { return place{p.CreatedAt, string(p.ID)} })
	if err != nil {
		return err
	}
	return c.answerObject(http.StatusOK, p)
}

// projectCreate serves POST /manage/v1/projects. It creates a project and responds with 201 and the
// project. If a project of this name exists, it responds with 200 and that project, so that a
// program can repeat the request.
func (c *call) projectCreate() error {
	name, named := "", false
	err := c.object(func(member string, value jsontext.Value) (bool, error) {
		if member != "name" {
			return false, nil
		}
		if name, named = text(value); !named {
			return true, badBody("name must be a string of 1 to 128 characters")
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if !named {
		return badBody("name is missing; send a string of 1 to 128 characters")
	}
	p, made, err := c.h.Access.MakeProject(c.r.Context(), name)
	if err != nil {
		return err
	}
	if !made {
		return c.answerObject(http.StatusOK, p)
	}
	c.note("project created", p.Name)
	return c.answerObject(http.StatusCreated, p)
}
