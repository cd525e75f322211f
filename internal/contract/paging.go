package contract

import (
	"fmt"
	"net/url"
	"slices"
)

var pagingCases = []Case{
	{"pages", `spec: list "data", "has_more", "next_cursor"; D27: "from the newest stream to the oldest"`, func(t *T) {
		mine := t.several(7)
		for _, limit := range []int{1, 3, 7, 100} {
			if got := t.walk(fmt.Sprintf("limit=%d", limit), mine, nil); !slices.Equal(got, mine) {
				t.Errorf("pages of %d: got %v, want %v", limit, got, mine)
			}
		}
	}},
	{"default", `spec: limit "1 to 100, default 20"`, func(t *T) {
		t.several(21)
		for query, want := range map[string]int{"": 20, "?limit=20": 20, "?limit=1": 1, "?limit=21": 21} {
			// One that another case deletes at this very moment is missing in its page.
			Eventually(t, Patience, fmt.Sprintf("%q gives %d streams, and there are more", query, want), func() bool {
				p := t.page(query)
				return len(p.Data) == want && (p.HasMore || want == 21)
			})
		}
		t.page("?limit=100")
	}},
	{"list holds stream objects", `spec: "data: array of stream objects"`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		want := t.Stream(s.ID)
		for _, got := range t.page("?limit=100").Data {
			if got.ID == s.ID && got != want {
				t.Errorf("the list says %+v, get says %+v", got, want)
			}
		}
	}},
	{"created while paging", `D27: "a stream created while somebody pages never shifts a page"`, func(t *T) {
		mine := t.several(6)
		got := t.walk("limit=2", mine, func(int) { t.jsonStream() })
		if !slices.Equal(got, mine) {
			t.Errorf("got %v, want %v", got, mine)
		}
	}},
	{"deleted while paging", `D27: a page goes on where the last one ended, also when what was there is gone`, func(t *T) {
		mine := t.several(6)
		gone := 0
		got := t.walk("limit=1", mine, func(seen int) {
			if seen > gone { // delete what the page ended with
				t.Delete("/v1/streams/" + mine[seen-1]).Want(204)
				gone = seen
			}
		})
		if !slices.Equal(got, mine) {
			t.Errorf("got %v, want %v", got, mine)
		}
	}},
	{"only the caller's project", `spec: "Lists the streams of the caller's project"`, func(t *T) {
		mine := t.several(2)
		first := t.page("?limit=1")
		for _, query := range []string{"?limit=100", "?limit=100&cursor=" + url.QueryEscape(*first.NextCursor)} {
			a := t.Get("/v1/streams"+query, WithKey(t.OtherLive))
			if a.Status == 400 { // a token of somebody else need not be taken
				continue
			}
			var p Page
			a.Want(200).into(&p)
			for _, s := range p.Data {
				if slices.Contains(mine, s.ID) {
					t.Errorf("%s shows another project's %s", query, s.ID)
				}
			}
		}
	}},
	{"bad limits", `D27: "limit out of 1..100 or no integer: 400 invalid_request_error"`, func(t *T) {
		for _, v := range []string{"0", "101", "-1", "abc", "1.5", "1e1", "%D9%A3", "0x10", "99999999999999999999", "%2B5"} {
			t.Get("/v1/streams?limit="+v).Refused(400, "invalid_request_error")
		}
	}},
	{"bad tokens", `D27: "a cursor that is no token of this server: 400 invalid_request_error"`, func(t *T) {
		t.several(2)
		token := *t.page("?limit=1").NextCursor
		for _, v := range []string{"x", "0", "head", "AAAA", "%00", token + "A", token[1:], token[:len(token)-1], "../" + token} {
			t.Get("/v1/streams?cursor="+url.QueryEscape(v)).Refused(400, "invalid_request_error")
		}
		t.Get("/v1/streams?limit=1&cursor=" + url.QueryEscape(token)).Want(200)
	}},
}

// several makes n streams and returns their ids, the newest first.
func (t *T) several(n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range n {
		ids[n-1-i] = t.jsonStream().ID
	}
	return ids
}

func (t *T) page(query string, options ...Option) Page {
	t.Helper()
	var p Page
	t.Get("/v1/streams"+query, options...).Want(200).into(&p)
	if p.HasMore != (p.NextCursor != nil) || p.NextCursor != nil && *p.NextCursor == "" {
		t.Errorf("list%s: has_more is %v and next_cursor %v", query, p.HasMore, p.NextCursor)
	}
	return p
}

// walk pages from the beginning until every one of mine was seen, and returns those of mine in the order of the list.
// The project is shared with other cases: theirs come and go in between.
func (t *T) walk(query string, mine []string, between func(seen int)) []string {
	t.Helper()
	var got []string
	last := ""
	p := t.page("?" + query)
	for {
		for _, s := range p.Data {
			t.checkStream(s)
			if !slices.Contains(mine, s.ID) {
				continue
			}
			if last != "" && s.CreatedAt > last {
				t.Errorf("%s was created at %s and comes after one of %s", s.ID, s.CreatedAt, last)
			}
			last = s.CreatedAt
			got = append(got, s.ID)
		}
		if !p.HasMore || len(got) >= len(mine) {
			return got
		}
		if between != nil {
			between(len(got))
		}
		p = t.page("?" + query + "&cursor=" + url.QueryEscape(*p.NextCursor))
	}
}
