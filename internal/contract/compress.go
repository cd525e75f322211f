package contract

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// gzipped asks for a response that is compressed with gzip.
var gzipped = WithHeader("Accept-Encoding", "gzip")

// Decompress decompresses the body of a response with this content coding. The body must be exactly
// one gzip member or one zstd frame.
func Decompress(coding string, b []byte) ([]byte, error) {
	switch coding {
	case "gzip":
		return unzip(b)
	case "zstd":
		return unzstd(b)
	}
	return b, nil
}

// unzstd decompresses a response that consists of exactly one zstd frame.
func unzstd(b []byte) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)) // RFC 9659 allows no larger window
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if n := bytes.Count(b, []byte{0x28, 0xb5, 0x2f, 0xfd}); n != 1 { // the first bytes of a frame; by chance, they are in a compressed body once in 4 GB
		return nil, fmt.Errorf("the response has %d zstd frames, want 1", n)
	}
	return d.DecodeAll(b, nil)
}

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
	{"GET", `D37: the responses to GET requests are compressed with gzip or zstd for clients that ask for it`, func(t *T) {
		s, raw := t.jsonStream(), t.rawStream()
		text := strings.Repeat(`"text",`, 200_000) + `1`
		t.Publish(s.ID, `[`+text+`]`)
		t.Publish(s.ID, `["short"]`)
		t.Post(NextPath(raw.ID), RawBody([]byte(text))).Want(202)
		t.Post(NextPath(raw.ID), RawBody(Filler(300<<10))).Want(202)
		for _, path := range []string{BatchPath(s.ID, 1), BatchPath(raw.ID, 1), BatchPath(raw.ID, 2), PagePath(s.ID, ""), PagePath(raw.ID, "from=1"), PagePath(raw.ID, "from=2")} {
			plain := t.Get(path).Want(200)
			if got := plain.Header.Get("Content-Encoding"); got != "" {
				t.Errorf("%s: without accept-encoding, content-encoding is %q", path, got)
			}
			for _, coding := range []string{"gzip", "zstd"} {
				packed := t.Get(path, WithHeader("Accept-Encoding", coding)).Want(200)
				if got := packed.Header.Get("Content-Encoding"); got != coding {
					t.Errorf("%s: content-encoding is %q, want %q", path, got, coding)
				}
				if !bytes.Equal(plain.Body, packed.Body) || plain.Header.Get("Content-Type") != packed.Header.Get("Content-Type") {
					t.Errorf("%s: the response that is compressed with %s has other content", path, coding)
				}
				for _, a := range []*Answer{plain, packed} {
					if got := a.Header.Get("Vary"); !strings.Contains(got, "Accept-Encoding") {
						t.Errorf("%s: vary is %q, want Accept-Encoding in it", path, got)
					}
				}
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
	{"only if the client accepts it", `D37: only clients that list gzip or zstd with a quality above 0 get a compressed response`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["`+strings.Repeat("x", 5000)+`"]`)
		for accept, want := range map[string]string{"gzip": "gzip", "GZIP": "gzip", "br, gzip;q=0.5": "gzip", "deflate,gzip ; q=1": "gzip", "zstd;q=0, gzip": "gzip", "zstd;q=0.5, gzip;q=0.501": "gzip",
			"zstd": "zstd", "gzip, zstd": "zstd", "Zstd, br, gzip": "zstd", "gzip;q=0.8, zstd;q=0.9": "zstd", "identity, zstd": "zstd", "identity;q=0.5, zstd": "zstd",
			"": "", "*": "", "identity": "", "gzip;q=0": "", "gzip;q=0.000": "", "gzip;q=x": "", "x-gzip": "", "br": "", "zstd;q=0": "", "zstd;q=1.1": "", "identity, zstd;q=0.5, gzip;q=0.9": ""} {
			a := t.Get(BatchPath(s.ID, 1), WithHeader("Accept-Encoding", accept)).Want(200)
			if got := a.Header.Get("Content-Encoding"); got != want {
				t.Errorf("accept-encoding %q: content-encoding is %q, want %q", accept, got, want)
			}
		}
		for accept, want := range map[string]string{"zstd": "", "gzip;q=0.5, zstd": "gzip"} {
			resp, cancel := t.Open("/v1/streams/"+s.ID, WithHeader("Accept-Encoding", accept))
			if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != 200 || got != want {
				t.Errorf("subscription with accept-encoding %q: got %d with content-encoding %q, want %q", accept, resp.StatusCode, got, want)
			}
			cancel()
			resp.Body.Close()
		}
		t.do(http.MethodHead, BatchPath(s.ID, 1), gzipped).Want(200)
		if a := t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), gzipped).Want(202); a.Header.Get("Content-Encoding") != "" {
			t.Error("the response to a publish is compressed")
		}
	}},
}
