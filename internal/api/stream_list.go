package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
)

// streamList serves GET /v1/streams. It sends a page of the project's streams that the key may
// read, newest first (D20, D27). The demo key may read only the demo stream (D22). streamList
// refuses a limit that is not an integer from 1 to 100, and a cursor that is not a page token of
// this project (400 invalid_request_error). It also refuses a key without the permission to read
// (403).
func (c *call) streamList() error {
	if err := c.grant.May(access.ListStreams, "", ""); err != nil {
		return err
	}
	limit, before, err := parsePage(c.r.URL.RawQuery, c.grant.Project())
	if err != nil {
		return err
	}
	list, next, more, err := c.h.Hub.List(c.r.Context(), c.grant.Project(), before, limit, func(id weir.StreamID) bool {
		return c.grant.Allows(access.Read, id)
	})
	if err != nil {
		return err
	}
	p := buffers.Get().(*[]byte)
	b := append(*p, `{"data":[`...)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendStream(b, &list[i])
	}
	if more {
		b = append(b, `],"has_more":true,"next_cursor":"`...)
		b = append(b, pageToken(c.grant.Project(), next)...)
		b = append(b, `"}`...)
	} else {
		b = append(b, `],"has_more":false,"next_cursor":null}`...)
	}
	err = c.answer(http.StatusOK, b)
	putBuffer(p, b)
	return err
}

// parsePage parses the parameters limit and cursor (D27, D35). It refuses a parameter that occurs
// twice, because such a request is ambiguous.
func parsePage(query string, project weir.ProjectID) (limit int, before uint64, err error) {
	if limit, err = parseLimit(query); err != nil {
		return 0, 0, err
	}
	if value, given, ok := queryParameter(query, "cursor"); given {
		var valid bool
		if before, valid = parsePageToken(project, value); !ok || !valid {
			return 0, 0, errPageToken
		}
	}
	return limit, before, nil
}

// parseLimit parses the parameter limit of a list.
func parseLimit(query string) (int, error) {
	value, given, ok := queryParameter(query, "limit")
	if !given {
		return weir.DefaultPage, nil
	}
	n, err := parseCount(value, 1, weir.MaxPage)
	if !ok || err != nil {
		return 0, errLimit
	}
	return n, nil
}

var (
	errLimit     = &weir.Error{Code: weir.InvalidRequest, Message: "invalid limit: send it once, as an integer from 1 to 100"}
	errPageToken = &weir.Error{Code: weir.InvalidRequest, Message: "invalid cursor: send it once, as the next_cursor of a page of the same project"}
)
