package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/client"
)

// repeated is a transport that acts as a service in which another publisher has stored batch 1 of
// stream x. The field read answers the request that reads this batch back.
type repeated struct {
	read func() *http.Response
}

func (s *repeated) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == "POST":
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return respond(200, `{"stream_id":"x","seq":1,"accepted":1,"cursor":1,"duplicate":true}`, "another"), nil
	case strings.HasSuffix(r.URL.Path, "/batches/1"):
		return s.read(), nil
	}
	return respond(200, `{"id":"x","mode":"json","cursor":1}`, ""), nil
}

// typed returns a response with a content type.
func typed(status int, contentType, text string) *http.Response {
	r := respond(status, text, "")
	r.Header.Set("Content-Type", contentType)
	return r
}

// With StartAt, a publisher may find that another publisher has already stored a batch under its
// sequence number. It then reads the stored batch and compares it with its own. If the response to
// this read is not from Weir, it says nothing about the batch, and the publisher tries again.
func TestPublisherComparesWithForeignAnswers(t *testing.T) {
	for name, answer := range map[string]*http.Response{
		"captive portal": typed(200, "application/json", `{"status":"ok"}`),
		"login page":     typed(200, "text/html", `<html>`),
		"another batch":  typed(200, "application/json", `{"seq":7,"ts":"2026-11-15T00:00:00.000Z","events":[2]}`),
		"404":            typed(404, "text/html", `<html>`),
	} {
		synctest.Test(t, func(t *testing.T) {
			foreign := true
			s := &repeated{read: func() *http.Response {
				if foreign {
					foreign = false
					return answer
				}
				return typed(200, "application/json", `{"seq":1,"ts":"2026-11-15T00:00:00.000Z","events":[1]}`)
			}}
			c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
			start := weir.Seq(1)
			p := publisher(t, c, "x", client.PublisherOptions{StartAt: &start})
			addNumbers(t, p, 1, 1)
			if err := p.Close(t.Context()); err != nil || foreign {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A stored batch may be evicted before the publisher has read it to compare. The publisher then
// reports the batch as evicted, as if the eviction had come before the publish.
func TestPublisherComparesWithEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &repeated{read: func() *http.Response {
			return typed(404, "application/json", `{"error":{"code":"stream_not_found","message":"no batch"}}`)
		}}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		start, gone := weir.Seq(1), 0
		p := publisher(t, c, "x", client.PublisherOptions{StartAt: &start, OnEvicted: func(weir.Seq) { gone++ }})
		addNumbers(t, p, 1, 1)
		if err := p.Close(t.Context()); err != nil || gone != 1 {
			t.Errorf("%d batches were reported as evicted, want 1: %v", gone, err)
		}
	})
}

// A success status alone means nothing: networks with a login page answer every request with 200.
func TestForeignSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, contentType := range []string{"application/json", "text/html"} {
			c := newClient(t, client.Options{URL: "http://weir.example", Retry: time.Minute, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				return typed(200, contentType, `{"status":"ok"}`), nil
			})})
			if err := c.DeleteStream(t.Context(), "x"); err == nil {
				t.Error("a stream was reported as deleted")
			}
			if b, err := c.Batch(t.Context(), "x", 1); err == nil {
				t.Errorf("a response with the content type %s became the batch %+v", contentType, b)
			}
			var failure error
			for _, err := range c.Streams(t.Context()) {
				failure = err
			}
			if failure == nil {
				t.Error("the list of streams was reported as empty")
			}
		}
	})
}
