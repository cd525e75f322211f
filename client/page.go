package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/url"
	"strconv"
	"time"

	"weir"
)

// PageOptions say which batches to read. At most one of From, Head, Last and Since may be set;
// without any, reading starts with the oldest stored batch.
type PageOptions struct {
	From  weir.Seq      // first sequence number; 0 means the oldest stored batch
	Head  bool          // start above the cursor, with batches that are not stored yet
	Last  int           // start with the newest batches; the value is their number, at most 1,000
	Since time.Time     // start with the first batch that was stored at this time or later
	Limit int           // maximum number of batches per page, up to 1,000; by default 100, or Last
	Wait  time.Duration // if there is no batch yet, wait for one for up to this long: whole seconds, at most 30
}

func (o *PageOptions) query() string {
	q := url.Values{}
	set := func(name string, n int64) {
		if n != 0 {
			q.Set(name, strconv.FormatInt(n, 10))
		}
	}
	set("from", int64(o.From))
	set("last", int64(o.Last))
	set("limit", int64(o.Limit))
	set("wait", int64(o.Wait/time.Second))
	if o.Head {
		q.Add("from", "head") // if From is set too, the service refuses the request
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.Format(time.RFC3339Nano))
	}
	return q.Encode()
}

// Page is a range of batches.
type Page struct {
	Batches []Batch  // in increasing order of their sequence numbers
	Next    weir.Seq // the sequence number to continue from
	Cursor  weir.Seq // the cursor of the stream
	Gap     *Gap     // batches before the page that can no longer be read; nil if there are none
}

// page is a page from a response.
type page struct {
	Batches []json.RawMessage `json:"batches"`
	Next    weir.Seq          `json:"next"`
	Cursor  weir.Seq          `json:"cursor"`
	Gap     *Gap              `json:"gap"`
}

func (p *page) check(decoding error) error {
	if decoding == nil && p.Batches == nil {
		return errors.New("it is not a page of batches")
	}
	return decoding
}

// Page reads one page of batches.
func (c *Client) Page(ctx context.Context, id weir.StreamID, o PageOptions) (Page, error) {
	r := &request{method: "GET", path: streamPath(id) + "/batches?" + o.query(), wait: o.Wait}
	var got page
	if _, err := c.do(ctx, r, &got); err != nil {
		return Page{}, err
	}
	p := Page{Next: got.Next, Cursor: got.Cursor, Gap: got.Gap, Batches: make([]Batch, len(got.Batches))}
	for i, b := range got.Batches {
		var err error
		if p.Batches[i], err = parseBatch(b); err != nil {
			return Page{}, err
		}
	}
	return p, nil
}

// Batches yields the batches of a stream, page by page, up to the cursor. If batches were evicted
// or lost before they could be read, it yields a [Batch] with Gap set in their place. With
// PageOptions.Wait it goes on until no batch comes for that time. If Batches yields an error, the
// iteration ends.
//
// A [Subscriber] is the better choice to follow a stream: it needs one request for any number of
// batches.
func (c *Client) Batches(ctx context.Context, id weir.StreamID, o PageOptions) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for {
			p, err := c.Page(ctx, id, o)
			if err != nil {
				yield(Batch{}, err)
				return
			}
			if p.Gap != nil && !yield(Batch{Gap: p.Gap}, nil) {
				return
			}
			for _, b := range p.Batches {
				if !yield(b, nil) {
					return
				}
			}
			if p.Next > p.Cursor && o.Wait == 0 || len(p.Batches) == 0 && p.Gap == nil {
				return
			}
			o = PageOptions{From: p.Next, Limit: o.Limit, Wait: o.Wait}
		}
	}
}
