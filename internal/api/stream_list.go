package api

import (
	"net/http"
	"net/url"

	"weir"
	"weir/internal/access"
)

var (
	errLimit     = &weir.Error{Code: weir.InvalidRequest, Message: "limit must be an integer from 1 to 100"}
	errPageToken = &weir.Error{Code: weir.InvalidRequest, Message: "cursor must be the next_cursor of an answer to the same project"}
)

// streamList answers GET /v1/streams with a page of the project's streams, from the newest to the oldest, as far as the key
// may read them (D20, D27); for the demo key that is the demo stream (D22). It refuses a limit that is no integer from 1 to
// 100 and a cursor that is no page token of this project (400 invalid_request_error), and a key that may not read (403).
func (c *call) streamList() error {
	if err := c.grant.May(access.ListStreams, "", ""); err != nil {
		return err
	}
	limit, before, err := parsePage(c.r.URL.Query(), c.grant.Project())
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

// parsePage reads limit and cursor. A parameter that is there twice could mean either, so it means neither.
func parsePage(query url.Values, project weir.ProjectID) (limit int, before uint64, err error) {
	limit = weir.DefaultPage
	if values, ok := query["limit"]; ok {
		if len(values) != 1 {
			return 0, 0, errLimit
		}
		n, err := weir.ParseSeq(values[0]) // the same plain decimal
		if err != nil || n < 1 || n > weir.MaxPage {
			return 0, 0, errLimit
		}
		limit = int(n)
	}
	if values, ok := query["cursor"]; ok {
		if len(values) == 1 {
			before, ok = parsePageToken(project, values[0])
		}
		if len(values) != 1 || !ok {
			return 0, 0, errPageToken
		}
	}
	return limit, before, nil
}
