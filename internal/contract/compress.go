package contract

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

// gzipped asks for a compressed response.
var gzipped = WithHeader("Accept-Encoding", "gzip")

// unzip decompresses a response that consists of exactly one gzip member.
func unzip(b []byte) ([]byte, error) {
	rest := bufio.NewReader(bytes.NewReader(b))
	z, err := gzip.NewReader(rest)
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	if b, err = io.ReadAll(z); err != nil {
		return nil, err
	}
	if _, err := rest.ReadByte(); err != io.EOF {
		return nil, errors.New("data follows the gzip member")
	}
	return b, nil
}

// unzipped is the body of a compressed subscription. It creates the decompressor with the first
// read, because creating it reads the header of the member.
type unzipped struct {
	io.ReadCloser
	z *gzip.Reader
}

func (u *unzipped) Read(b []byte) (n int, err error) {
	if u.z == nil {
		if u.z, err = gzip.NewReader(u.ReadCloser); err != nil {
			return 0, err
		}
		u.z.Multistream(false)
	}
	return u.z.Read(b)
}

var compressCases = []Case{
	{"subscription", `D37: subscriptions are compressed with gzip (one member) for clients that ask for it; frames are not held back`, func(t *T) {
		s := t.jsonStream()
		for range 3 {
			t.Publish(s.ID, `["`+strings.Repeat("old ", 3000)+`"]`)
		}
		path := "/v1/streams/" + s.ID + "?cursor=0"
		resp, cancel := t.Open(path, gzipped)
		if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != 200 || got != "gzip" {
			t.Fatalf("got %d with content-encoding %q", resp.StatusCode, got)
		}
		resp.Body = &unzipped{ReadCloser: resp.Body}
		zipped, plain := t.follow(path, resp, cancel), t.Subscribe(s.ID, "cursor=0")
		same := func(seq int64) {
			t.Helper()
			t.same(zipped.Batch(seq).Events, plain.Batch(seq).Events)
		}
		for seq := int64(1); seq <= 3; seq++ {
			same(seq)
		}
		for seq := int64(4); seq <= 10; seq++ { // each batch arrives before the next one is published
			t.Publish(s.ID, `["`+strings.Repeat("new ", 10<<seq)+`"]`)
			same(seq)
		}
		t.Delete("/v1/streams/" + s.ID).Want(204)
		zipped.end() // at the end, the decompressor checks the checksum and the length
	}},
	{"GET", `D37: the responses to GET requests are compressed with gzip for clients that ask for it`, func(t *T) {
		s, raw := t.jsonStream(), t.rawStream()
		text := strings.Repeat(`"text",`, 200_000) + `1`
		t.Publish(s.ID, `[`+text+`]`)
		t.Publish(s.ID, `["short"]`)
		t.Post(NextPath(raw.ID), RawBody([]byte(text))).Want(202)
		t.Post(NextPath(raw.ID), RawBody(Filler(300<<10))).Want(202)
		for _, path := range []string{BatchPath(s.ID, 1), BatchPath(raw.ID, 1), BatchPath(raw.ID, 2), PagePath(s.ID, ""), PagePath(raw.ID, "from=1"), PagePath(raw.ID, "from=2")} {
			plain, zipped := t.Get(path).Want(200), t.Get(path, gzipped).Want(200)
			if got := zipped.Header.Get("Content-Encoding"); got != "gzip" || plain.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s: content-encoding is %q, and without accept-encoding it is %q; want gzip and none", path, got, plain.Header.Get("Content-Encoding"))
			}
			if !bytes.Equal(plain.Body, zipped.Body) || plain.Header.Get("Content-Type") != zipped.Header.Get("Content-Type") {
				t.Errorf("%s: the compressed response has other content", path)
			}
		}
		t.Get("/v1/streams", gzipped).Want(200)
		t.Get("/v1/streams/"+s.ID, gzipped).Want(200)
		t.Get(BatchPath(s.ID, 99), gzipped).Refused(404, "stream_not_found")
	}},
	{"short responses", `D37: the responses to GET requests with a body of at least 1 KiB are compressed with gzip`, func(t *T) {
		s, raw := t.jsonStream(), t.rawStream()
		paths := []string{PagePath(raw.ID, "")}
		for i := range 3 {
			plain := len(`{"seq":1,"ts":"2026-11-15T00:00:00.000Z","events":[""]}`)
			t.Publish(s.ID, `["`+strings.Repeat("x", 1023+i-plain)+`"]`)
			paths = append(paths, BatchPath(s.ID, int64(i+1)))
		}
		t.Post(NextPath(raw.ID), RawBody([]byte("short"))).Want(202)
		t.Post(NextPath(raw.ID), RawBody(Filler(100<<10))).Want(202)
		for _, path := range paths {
			a := t.Get(path, gzipped).Want(200)
			if zipped := a.Header.Get("Content-Encoding") == "gzip"; zipped != (len(a.Body) >= 1<<10) {
				t.Errorf("%s: a body of %d bytes is compressed: %v; want compression from 1 KiB on", path, len(a.Body), zipped)
			}
		}
	}},
	{"only if the client accepts it", `D37: only clients that list gzip with a quality above 0 get a compressed response`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["`+strings.Repeat("x", 5000)+`"]`)
		for accept, want := range map[string]bool{"gzip": true, "GZIP": true, "br, gzip;q=0.5": true, "deflate,gzip ; q=1": true,
			"": false, "*": false, "identity": false, "gzip;q=0": false, "gzip;q=0.000": false, "gzip;q=x": false, "x-gzip": false, "br": false} {
			a := t.Get(BatchPath(s.ID, 1), WithHeader("Accept-Encoding", accept)).Want(200)
			if got := a.Header.Get("Content-Encoding") == "gzip"; got != want {
				t.Errorf("accept-encoding %q: compressed: %v, want %v", accept, got, want)
			}
		}
		t.do(http.MethodHead, BatchPath(s.ID, 1), gzipped).Want(200)
		if a := t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), gzipped).Want(202); a.Header.Get("Content-Encoding") != "" {
			t.Error("the response to a publish is compressed")
		}
	}},
}
