package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"unicode/utf8"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/jsonbody"
)

// checkSane checks the properties that every response must have: no redirect and no 5xx, the header
// fields of the API, and JSON in an error.
func checkSane(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code >= 500 || w.Code >= 300 && w.Code < 400 {
		t.Fatalf("the status is a redirect or a 5xx: %d %s", w.Code, w.Body)
	}
	if !requestIDs.MatchString(w.Header().Get("X-Request-Id")) || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Ratelimit-Limit") == "" {
		t.Fatalf("a header field of the API is missing or wrong: %d %v", w.Code, w.Header())
	}
	if w.Code >= 400 && !json.Valid(w.Body.Bytes()) {
		t.Fatalf("the body of the error is not JSON: %d %q", w.Code, w.Body)
	}
}

func FuzzPath(f *testing.F) {
	svc := startService(f)
	for _, p := range []string{"/v1/streams", "/v1//x", "/v1/streams/%2e%2e/..", "/v1/streams/a%2fb/%70ublish", "/v1/streams/abc%00/batches/1", "/v1/health/", "/v1/streams/0000000000000000000000/9?limit=%zz&;"} {
		f.Add("GET", p)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || method == "" {
			return
		}
		r := &http.Request{Method: method, URL: u, Header: http.Header{"Authorization": {"Bearer " + svc.Key}, "Content-Type": {"application/json"}}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "1.2.3.4:5"}
		w := httptest.NewRecorder()
		svc.API.ServeHTTP(w, r)
		checkSane(t, w)
	})
}

func FuzzAuthorization(f *testing.F) {
	svc := startService(f)
	for _, a := range []string{"", "Bearer", "Bearer ", "bearer x", "Basic x", "Bearer svc_live_00000000000000000000000000000000", "Bearer " + access.DemoKey} {
		f.Add(a, "")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		r := httptest.NewRequest("GET", "/v1/streams", nil)
		r.Header["Authorization"] = []string{one}
		if two != "" {
			r.Header["Authorization"] = []string{one, two}
		}
		w := httptest.NewRecorder()
		svc.API.ServeHTTP(w, r)
		checkSane(t, w)
		if w.Code == 200 && (two != "" || len(one) < len("Bearer ")+len(svc.Key)) || w.Code != 200 && w.Code != 401 {
			t.Fatalf("the Authorization fields %q and %q got the wrong status %d", one, two, w.Code)
		}
	})
}

// FuzzFrame encodes an arbitrary batch as a frame and puts it between other frames. A strict parser
// must return the same batch.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"events":[1,"\n\ndata: x"]}`), "application/octet-stream", uint64(7))
	f.Add([]byte("\r\n\r\nevent: end\n\n"), "application/octet-stream; a=b", uint64(0))
	f.Fuzz(func(t *testing.T, body []byte, contentType string, n uint64) {
		seq := weir.Seq(n) & weir.MaxSeq
		raw := weir.Batch{Seq: seq, ContentType: contentType, Payload: body}
		stream := append(api.HelloFrame(seq, true), api.Frame(nil, weir.Raw, &raw)...)
		payload, _, err := jsonbody.Events(bytes.Clone(body))
		if err == nil {
			stream = append(stream, api.Frame(nil, weir.JSON, &weir.Batch{Seq: seq, Payload: payload})...)
		}
		stream = append(stream, api.HeartbeatFrame...)
		r := sseReader{bufio.NewReader(bytes.NewReader(stream))}
		next := func() sseEvent {
			e, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		next()
		var got struct {
			Seq         weir.Seq
			ContentType string `json:"content_type"`
			Data        []byte
			Events      json.RawMessage
		}
		e := next()
		if err := json.Unmarshal([]byte(e.data), &got); err != nil {
			t.Fatal(err)
		}
		if e.name != "batch" || e.id != strconv.FormatUint(uint64(seq), 10) || got.Seq != seq || !bytes.Equal(got.Data, body) || utf8.ValidString(contentType) && got.ContentType != contentType {
			t.Fatalf("the raw batch %q was decoded as %+v", body, got)
		}
		if err == nil {
			if err := json.Unmarshal([]byte(next().data), &got); err != nil || !bytes.Equal(got.Events, payload) {
				t.Fatalf("the events %q were decoded as %q: %v", payload, got.Events, err)
			}
		}
		if !next().comment {
			t.Fatal("the heartbeat is missing")
		}
		if _, err := r.next(); err != io.EOF {
			t.Fatalf("after the last frame: %v, want EOF", err)
		}
	})
}
