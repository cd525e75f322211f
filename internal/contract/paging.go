package contract

import (
	"fmt"
	"net/url"
	"slices"
)

var pagingCases = []Case{
	{"pages", `spec: list "data", "has_more", "next_cursor"; D27: from the newest stream to the oldest`, func(t *T) {
		mine := t.createStreams(7)
		for _, limit := range []int{1, 3, 7, 100} {
			if got := t.walk(fmt.Sprintf("limit=%d", limit), mine, nil); !slices.Equal(got, mine) {
				t.Errorf("pages of %d: got %v, want %v", limit, got, mine)
			}
		}
	}},
	{"default", `spec: limit "1 to 100, default 20"`, func(t *T) {
		t.createStreams(21)
		for query, want := range map[string]int{"": 20, "?limit=20": 20, "?limit=1": 1, "?limit=21": 21} {
			// A page has fewer streams if another case deletes some of them while the server builds
			// the page.
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
				t.Errorf("the list has %+v, get returns %+v", got, want)
			}
		}
	}},
	{"created while paging", `D27: creating a stream never shifts the pages of a client that is paging`, func(t *T) {
		mine := t.createStreams(6)
		got := t.walk("limit=2", mine, func(int) { t.jsonStream() })
		if !slices.Equal(got, mine) {
			t.Errorf("got %v, want %v", got, mine)
		}
	}},
	{"deleted while paging", `D27: the next page continues where the last page ended, even if the stream at that point was deleted`, func(t *T) {
		mine := t.createStreams(6)
		gone := 0
		got := t.walk("limit=1", mine, func(seen int) {
			if seen > gone { // delete the last stream of the page
				t.Delete("/v1/streams/" + mine[seen-1]).Want(204)
				gone = seen
			}
		})
		if !slices.Equal(got, mine) {
			t.Errorf("got %v, want %v", got, mine)
		}
	}},
	{"only the caller's project", `spec: "Lists the streams of the caller's project"`, func(t *T) {
		mine := t.createStreams(2)
		first := t.page("?limit=1")
		for _, query := range []string{"?limit=100", "?limit=100&cursor=" + url.QueryEscape(*first.NextCursor)} {
			a := t.Get("/v1/streams"+query, WithKey(t.OtherLive))
			if a.Status == 400 { // a server may refuse a token of another project
				continue
			}
			var p Page
			a.Want(200).decode(&p)
			for _, s := range p.Data {
				if slices.Contains(mine, s.ID) {
					t.Errorf("%s shows %s, a stream of another project", query, s.ID)
				}
			}
		}
	}},
	{"bad limits", `D27: a limit outside 1 to 100, or not an integer, gives 400 invalid_request_error`, func(t *T) {
		for _, v := range []string{"0", "101", "-1", "abc", "1.5", "1e1", "%D9%A3", "0x10", "99999999999999999999", "%2B5"} {
			t.Get("/v1/streams?limit="+v).Refused(400, "invalid_request_error")
		}
	}},
	{"bad tokens", `D27: a cursor that this server did not issue gives 400 invalid_request_error`, func(t *T) {
		t.createStreams(2)
		token := *t.page("?limit=1").NextCursor
		for _, v := range []string{"x", "0", "head", "AAAA", "%00", token + "A", token[1:], token[:len(token)-1], "../" + token} {
			t.Get("/v1/streams?cursor="+url.QueryEscape(v)).Refused(400, "invalid_request_error")
		}
		t.Get("/v1/streams?limit=1&cursor=" + url.QueryEscape(token)).Want(200)
	}},
	{"malformed queries", `D35: if the parameter cursor or limit cannot be parsed, the response is 400; the server does not fall back to the first page or the default limit`, func(t *T) {
		t.createStreams(2)
		token := url.QueryEscape(*t.page("?limit=1").NextCursor)
		for _, q := range []string{"cursor=%gg", "cursor=%", "cursor=" + token + "%zz", "cursor=" + token + ";a=b", "cursor;a=b", "c%75rsor=%gg", "a=b&cursor=%gg",
			"limit=%zz", "limit=1%", "limit=1;a=b", "limit;cursor=" + token, "limit=1;", "cursor=" + token + "&limit=%zz", "limit=1&limit=%zz"} {
			t.Get("/v1/streams?"+q).Refused(400, "invalid_request_error")
		}
		for _, q := range []string{"a=%zz", "%zz=1", "a;b", ";", "%", "&&=&", "a=b;limit=0", "limit%=0", "cursors=%gg", "xlimit=%zz"} {
			// Other cases delete streams meanwhile, so a page may be empty.
			if p := t.page("?" + q + "&limit=1"); len(p.Data) > 1 {
				t.Errorf("?%s&limit=1: got %d streams", q, len(p.Data))
			}
		}
	}},
}

// createStreams creates n streams and returns their ids, the newest first.
func (t *T) createStreams(n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range n {
		ids[n-1-i] = t.jsonStream().ID
	}
	return ids
}

// page gets and checks one page of the list.
func (t *T) page(query string, options ...Option) Page {
	t.Helper()
	var p Page
	t.Get("/v1/streams"+query, options...).Want(200).decode(&p)
	if p.HasMore != (p.NextCursor != nil) || p.NextCursor != nil && *p.NextCursor == "" {
		t.Errorf("list%s: has_more is %v, but next_cursor is %v", query, p.HasMore, p.NextCursor)
	}
	return p
}

// walk reads page after page until it has seen all streams whose ids are in the parameter mine, and
// returns these ids in the order of the list. After each page it calls the function afterPage with
// the number of these streams seen so far. It skips all other streams, because other cases create
// and delete streams in the same project at the same time.
func (t *T) walk(query string, mine []string, afterPage func(seen int)) []string {
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
				t.Errorf("%s was created at %s, but follows a stream created at %s", s.ID, s.CreatedAt, last)
			}
			last = s.CreatedAt
			got = append(got, s.ID)
		}
		if !p.HasMore || len(got) >= len(mine) {
			return got
		}
		if afterPage != nil {
			afterPage(len(got))
		}
		p = t.page("?" + query + "&cursor=" + url.QueryEscape(*p.NextCursor))
	}
}
