package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// BatchPage is a page of batches (D37). Batches are decoded later, because their form depends on
// the mode of the stream.
type BatchPage struct {
	Batches []json.RawMessage `json:"batches"`
	Next    int64             `json:"next"`
	Cursor  int64             `json:"cursor"`
	Gap     *PageGap          `json:"gap"`
}

// PageGap is a range of sequences that can no longer be read. It lies before the batches of a page.
type PageGap struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Reason string `json:"reason"`
}

// PagePath is the path to read a page.
func PagePath(id, query string) string { return "/v1/streams/" + id + "/batches?" + query }

// Page gets a page of batches and checks its form.
func (t *T) Page(id, query string, options ...Option) BatchPage {
	t.Helper()
	a := t.Get(PagePath(id, query), options...).Want(200)
	var p BatchPage
	d := json.NewDecoder(bytes.NewReader(a.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || p.Batches == nil {
		t.Fatalf("%s: %v in %s", a.request, err, Shorten(string(a.Body)))
	}
	last := int64(-1)
	for _, seq := range p.seqs(t) {
		if seq <= last {
			t.Errorf("%s: batch %d follows batch %d", a.request, seq, last)
		}
		last = seq
	}
	if last >= 0 && p.Next != last+1 {
		t.Errorf("%s: next is %d, want one more than the last batch, %d", a.request, p.Next, last)
	}
	return p
}

// seqs returns the sequences of the batches of a page.
func (p BatchPage) seqs(t *T) []int64 {
	t.Helper()
	var seqs []int64
	for _, b := range p.Batches {
		var v struct {
			Seq int64
			TS  string
		}
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		t.checkTime(v.TS)
		seqs = append(seqs, v.Seq)
	}
	return seqs
}

// pageOf checks the sequences of a page, and its members next and cursor.
func pageOf(t *T, id, query string, next, cursor int64, want ...int64) BatchPage {
	t.Helper()
	p := t.Page(id, query)
	if got := p.seqs(t); !slices.Equal(got, want) || p.Next != next || p.Cursor != cursor {
		t.Errorf("?%s: got batches %v, next %d, cursor %d; want %v, %d, %d", query, got, p.Next, p.Cursor, want, next, cursor)
	}
	return p
}

var pageCases = []Case{
	{"json batches", `D37: a page has batch objects as in the data of a subscription's events, in increasing order of sequence, and the members next and cursor`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[{"a":1.0}]`)
		t.Publish(s.ID, `[]`)
		p := pageOf(t, s.ID, "", 3, 2, 1, 2)
		sub := t.Subscribe(s.ID, "cursor=0")
		for i, raw := range p.Batches {
			var b Batch
			if err := Exactly(raw, &b); err != nil {
				t.Fatal(err)
			}
			want := sub.Batch(int64(i + 1))
			t.same(b.Events, want.Events)
			if b.TS != want.TS {
				t.Errorf("batch %d was stored at %s, but the subscription says %s", b.Seq, b.TS, want.TS)
			}
		}
	}},
	{"raw batches", `D37: the batches of a raw stream have content_type, and the bytes in base64`, func(t *T) {
		s := t.rawStream()
		t.Post(NextPath(s.ID), RawBody([]byte{0, 1, 255})).Want(202)
		t.Post(NextPath(s.ID), body("application/octet-stream; v=1", nil)).Want(202)
		p := pageOf(t, s.ID, "from=0", 3, 2, 1, 2)
		var one, two RawBatch
		for raw, b := range map[string]*RawBatch{string(p.Batches[0]): &one, string(p.Batches[1]): &two} {
			if err := Exactly([]byte(raw), b); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(one.Data, []byte{0, 1, 255}) || two.ContentType != "application/octet-stream; v=1" || len(two.Data) != 0 {
			t.Errorf("got %+v and %+v", one, two)
		}
	}},
	{"where a page starts", `D37: a page starts at N itself with from=N, at the oldest kept batch with from=0, above the cursor with from=head, and at the first of the newest N batches with last=N; without these parameters, it starts at the oldest kept batch`, func(t *T) {
		s := t.jsonStream()
		pageOf(t, s.ID, "", 0, 0)
		pageOf(t, s.ID, "from=head", 0, 0)
		pageOf(t, s.ID, "last=3", 0, 0)
		for range 5 {
			t.Publish(s.ID, `[]`)
		}
		pageOf(t, s.ID, "", 6, 5, 1, 2, 3, 4, 5)
		pageOf(t, s.ID, "from=0", 6, 5, 1, 2, 3, 4, 5)
		pageOf(t, s.ID, "from=1", 6, 5, 1, 2, 3, 4, 5)
		pageOf(t, s.ID, "from=4", 6, 5, 4, 5)
		pageOf(t, s.ID, "from=head", 6, 5)
		pageOf(t, s.ID, "from=6", 6, 5)
		pageOf(t, s.ID, "from=1000", 6, 5)
		pageOf(t, s.ID, "from=9007199254740991", 6, 5)
		pageOf(t, s.ID, "last=1", 6, 5, 5)
		pageOf(t, s.ID, "last=3", 6, 5, 3, 4, 5)
		pageOf(t, s.ID, "last=1000", 6, 5, 1, 2, 3, 4, 5)
		pageOf(t, s.ID, "last=4&limit=2", 4, 5, 2, 3)
	}},
	{"sequence 0", `D37: from=0 includes batch 0 if it is stored; D15: if nothing was ever stored, reading from head misses no batch`, func(t *T) {
		s := t.jsonStream()
		next := pageOf(t, s.ID, "from=head", 0, 0).Next
		t.PublishAt(s.ID, 0, `["zero"]`)
		pageOf(t, s.ID, fmt.Sprint("from=", next), 1, 0, 0)
		pageOf(t, s.ID, "from=1", 1, 0)
		t.PublishAt(s.ID, 1, `["one"]`)
		pageOf(t, s.ID, "", 2, 1, 0, 1)
		pageOf(t, s.ID, "last=1", 2, 1, 1)
	}},
	{"pages", `D37: limit is 1 to 1000, default 100; next is the sequence to continue from`, func(t *T) {
		s := t.jsonStream()
		const n = 130
		for seq := int64(1); seq <= n; seq++ {
			t.PublishAt(s.ID, seq, `[]`)
		}
		if got := len(t.Page(s.ID, "").Batches); got != 100 {
			t.Errorf("got %d batches, want the default of 100", got)
		}
		if got := len(t.Page(s.ID, "last=120").Batches); got != 120 {
			t.Errorf("last=120: got %d batches", got)
		}
		for _, limit := range []int{1, 50, 65, 1000} {
			var got []int64
			for from := int64(0); from <= n; {
				p := t.Page(s.ID, fmt.Sprintf("from=%d&limit=%d", from, limit))
				if len(p.Batches) > limit || p.Cursor != n {
					t.Fatalf("limit=%d: got %d batches, cursor %d", limit, len(p.Batches), p.Cursor)
				}
				got = append(got, p.seqs(t)...)
				if p.Next <= from {
					t.Fatalf("limit=%d: next is %d after from=%d", limit, p.Next, from)
				}
				from = p.Next
				if limit == 1 && from > 10 {
					from = max(from, n-3) // skip to the end: a few requests are enough
				}
			}
			if limit > 1 && len(got) != n || got[len(got)-1] != n {
				t.Errorf("limit=%d: got %d batches up to %d", limit, len(got), got[len(got)-1])
			}
		}
	}},
	{"8 MiB", `D37: a page also ends at about 8 MiB, and has at least one batch`, func(t *T) {
		s := t.rawStream()
		bodies := [][]byte{Filler(3 * MiB), Filler(3 * MiB), Filler(BodyLimit), Filler(10)}
		for _, b := range bodies {
			t.Post(NextPath(s.ID), RawBody(b)).Want(202)
		}
		seen := int64(0)
		for from := int64(1); from <= 4; {
			a := t.Get(PagePath(s.ID, fmt.Sprint("from=", from))).Want(200)
			var p BatchPage
			if err := json.Unmarshal(a.Body, &p); err != nil || len(p.Batches) == 0 {
				t.Fatalf("from=%d: %d batches, %v", from, len(p.Batches), err)
			}
			if len(p.Batches) > 1 && len(a.Body) > 9*MiB {
				t.Errorf("from=%d: a page of %d batches has %d bytes", from, len(p.Batches), len(a.Body))
			}
			for _, raw := range p.Batches {
				var b RawBatch
				if err := json.Unmarshal(raw, &b); err != nil || b.Seq != seen+1 {
					t.Fatalf("got batch %d after %d, %v", b.Seq, seen, err)
				}
				if !bytes.Equal(b.Data, bodies[seen]) {
					t.Errorf("batch %d has %d bytes that differ from the %d published", b.Seq, len(b.Data), len(bodies[seen]))
				}
				seen++
			}
			from = p.Next
		}
	}},
	{"since", `D37: since=<RFC 3339 timestamp> gives the batches that were stored at that time or later`, func(t *T) {
		s := t.jsonStream()
		var times []time.Time
		for seq := int64(1); seq <= 4; seq++ {
			t.Publish(s.ID, `[]`)
			times = append(times, t.checkTime(t.Batch(s.ID, seq).TS))
			if seq < 4 { // wait, so that the next batch gets a later time
				Eventually(t, Patience, "the clock of the server moves on", func() bool { return time.Since(times[seq-1]) > 5*time.Millisecond })
			}
		}
		query := func(at time.Time, layout string) string { return "since=" + url.QueryEscape(at.Format(layout)) }
		for i, at := range times {
			first := slices.IndexFunc(times, func(o time.Time) bool { return !o.Before(at) })
			var want []int64
			for seq := int64(first + 1); seq <= 4; seq++ {
				want = append(want, seq)
			}
			pageOf(t, s.ID, query(at, time.RFC3339Nano), 5, 4, want...)
			pageOf(t, s.ID, query(at.In(time.FixedZone("", 5400)), time.RFC3339Nano), 5, 4, want...)
			if i == 0 {
				pageOf(t, s.ID, query(at.Add(-time.Hour), time.RFC3339), 5, 4, want...)
			}
		}
		pageOf(t, s.ID, query(times[3].Add(time.Microsecond), time.RFC3339Nano), 5, 4)
		pageOf(t, s.ID, query(times[3].Add(time.Hour), time.RFC3339), 5, 4)
		pageOf(t, s.ID, "since=1969-12-31T00:00:00Z&limit=2", 3, 4, 1, 2)
	}},
	{"open gaps", `D37: a page ends before an open gap, as delivery does; D4: a gap below the start of the page has no effect`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `[]`)
		t.PublishAt(s.ID, 4, `[]`)
		// The gap may close at any time, so the page is checked only if the gap is still open
		// afterwards.
		p, above := t.Page(s.ID, "from=1"), t.Page(s.ID, "from=3")
		last := t.Page(s.ID, "last=1")
		if t.Post(SeqPath(s.ID, 2), JSONBody(`{"events":[]}`)).Status == 202 {
			if got := p.seqs(t); !slices.Equal(got, []int64{1}) || p.Next != 2 || p.Cursor != 4 {
				t.Errorf("got batches %v, next %d, cursor %d; want 1, 2, 4", got, p.Next, p.Cursor)
			}
			if len(above.Batches) != 0 || above.Next != 3 {
				t.Errorf("from=3: got %d batches and next %d; want none and 3", len(above.Batches), above.Next)
			}
		}
		if got := last.seqs(t); !slices.Equal(got, []int64{4}) {
			t.Errorf("last=1: got %v, want 4", got)
		}
		p = t.Page(s.ID, "from=3&wait=30")
		if got := p.seqs(t); !slices.Equal(got, []int64{4}) {
			t.Errorf("after the gap has closed: got %v, want 4", got)
		}
		pageOf(t, s.ID, "last=2", 5, 4, t.Page(s.ID, "from=2").seqs(t)...)
	}},
	{"evicted", `D37: if batches that from=N asks for were evicted, the page has the member gap, and its batches are those after the gap; from=0 and the other starts ask only for batches that are kept, so the page has no gap`, func(t *T) {
		s := t.Overfull(6)
		if t.Spread {
			t.evicted(s.ID, 3)
		}
		for from, gap := range map[int]*PageGap{1: {1, 3, "evicted"}, 3: {3, 3, "evicted"}, 4: nil} {
			p := pageOf(t, s.ID, fmt.Sprint("from=", from), 7, 6, 4, 5, 6)
			if (p.Gap == nil) != (gap == nil) || gap != nil && *p.Gap != *gap {
				t.Errorf("from=%d: got gap %+v, want %+v", from, p.Gap, gap)
			}
		}
		for _, q := range []string{"", "from=0", "last=5", "since=1970-01-02T00:00:00Z"} {
			if p := pageOf(t, s.ID, q, 7, 6, 4, 5, 6); p.Gap != nil {
				t.Errorf("?%s: got gap %+v", q, p.Gap)
			}
		}
	}},
	{"long poll", `D37: with wait, the request is a long poll: the response comes as soon as there is a batch, or is an empty page when the time in wait has passed`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["old"]`)
		pageOf(t, s.ID, "from=1&wait=30", 2, 1, 1)
		for _, query := range []string{"from=head&wait=30", "from=2&wait=30"} {
			cursor := t.Cursor(s.ID).Cursor
			got := make(chan *Answer, 1)
			go func() { got <- poll(t, s.ID, query) }()
			// The poll may begin before or after the first batch is stored. It must return a batch
			// in both cases. But a poll from head that begins after a batch was stored waits for
			// the next one, so the loop stores batches until the poll has returned.
			for seq := cursor + 1; ; seq++ {
				t.PublishAt(s.ID, seq, `["new"]`)
				select {
				case a := <-got:
					var p BatchPage
					if a == nil || a.Status != 200 || json.Unmarshal(a.Body, &p) != nil || len(p.Batches) == 0 {
						t.Fatalf("?%s: got %+v", query, a)
					}
				case <-time.After(100 * time.Millisecond):
					continue
				}
				break
			}
		}
		begun := time.Now()
		next := t.Cursor(s.ID).Cursor + 1
		pageOf(t, s.ID, "from=head&wait=1", next, next-1)
		if waited := time.Since(begun); waited < time.Second {
			t.Errorf("an empty page was returned after %v, want 1 s", waited)
		}
	}},
	{"deleted while waiting", `D31: requests in flight to a deleted stream get 404`, func(t *T) {
		s := t.jsonStream()
		got := make(chan *Answer, 1)
		go func() { got <- poll(t, s.ID, "wait=30") }()
		time.AfterFunc(50*time.Millisecond, func() { t.remove(s.ID) })
		if a := <-got; a == nil || a.Status != 404 || a.code() != "stream_not_found" {
			t.Errorf("got %+v, want 404 stream_not_found", a)
		}
	}},
	{"revoked while waiting", `D18: when the key is revoked, a request that waits ends within 2 seconds`, func(t *T) {
		s := t.jsonStream()
		k, revoke := t.newKey(Key{Kind: "live"})
		got := make(chan *Answer, 1)
		go func() { got <- poll(t, s.ID, "wait=30", WithKey(k)) }()
		time.AfterFunc(50*time.Millisecond, revoke)
		if a := <-got; a == nil || a.Status != 401 || a.code() != "key_revoked" {
			t.Errorf("got %+v, want 401 key_revoked", a)
		}
	}},
	{"bad parameters", `D37: a parameter that is malformed, repeated or out of range gives 400, and so do two parameters that both say where the page starts`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[]`)
		for _, q := range []string{"from=x", "from=", "from=-1", "from=01", "from=1.0", "from=9007199254740992", "from=HEAD", "from=1&from=1", "from=%gg", "from=1;a=b",
			"last=0", "last=1001", "last=-1", "last=x", "last=", "last=1&last=2", "limit=0", "limit=1001", "limit=x", "limit=", "limit=1&limit=1",
			"wait=31", "wait=-1", "wait=1.5", "wait=x", "wait=", "wait=0&wait=0", "since=yesterday", "since=", "since=1731628800", "since=2026-11-15",
			"since=2026-11-15T00:00:00", "since=2026-13-15T00:00:00Z", "since=2026-11-15T00:00:00+01:00", "since=2026-11-15T00:00:00Z&since=2026-11-15T00:00:00Z",
			"from=1&last=1", "from=head&since=2026-11-15T00:00:00Z", "last=1&since=2026-11-15T00:00:00Z", "from=0&last=1"} {
			t.Get(PagePath(s.ID, q)).Refused(400, "invalid_request_error")
		}
		pageOf(t, s.ID, "cursor=x&a=%zz&from=0&limit=1&wait=0", 2, 1, 1)
	}},
	{"who may read", `D37: a page needs the permission read; D19: the stream is checked before the parameters`, func(t *T) {
		s := t.jsonStream()
		path := PagePath(s.ID, "from=x")
		t.Get(path, WithKey("")).Refused(401, "missing_api_key")
		t.Get(path, WithKey(t.OtherLive)).Refused(403, forbidden)
		t.Get(PagePath("short", "from=x")).Refused(400, "invalid_stream_id")
		t.Get(PagePath(NewID(), "from=x")).Refused(404, "stream_not_found")
		t.Post(PagePath(s.ID, ""), JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
		t.do(http.MethodHead, PagePath(s.ID, "wait=30")).Want(200)
		k, _ := t.newKey(Key{Kind: "live", Permissions: []string{"publish", "manage"}})
		t.Get(PagePath(s.ID, ""), WithKey(k)).Refused(403, forbidden)
		k, _ = t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
		t.Get(PagePath(s.ID, ""), WithKey(k)).Want(200)
	}},
}

// poll sends a long poll, and returns nil if there is no response. Cases call it from goroutines of
// their own, where t.Fatal is not allowed, so it uses no method that may fail the test.
func poll(t *T, id, query string, options ...Option) *Answer {
	ctx, cancel := contextWithTimeout()
	defer cancel()
	resp, err := t.Try(ctx, http.MethodGet, PagePath(id, query), options...)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	return &Answer{t, query, resp.StatusCode, resp.Header, ReadAll(resp)}
}
