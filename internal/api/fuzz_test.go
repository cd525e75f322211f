package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/engine/memory"
	"weir/internal/hub"
)

// fuzzed returns a handler without a listener, and a key for it.
func fuzzed(f *testing.F) (h *Handler, key string) {
	ctx := context.Background()
	e := memory.New()
	acc, err := access.Open(ctx, e, access.Options{Demo: true})
	if err != nil {
		f.Fatal(err)
	}
	p, err := acc.CreateProject(ctx, "p")
	if err != nil {
		f.Fatal(err)
	}
	_, secret, err := acc.CreateKey(ctx, access.KeySpec{Project: p.ID, Kind: access.Live})
	if err != nil {
		f.Fatal(err)
	}
	hb, err := hub.Open(ctx, e, hub.Options{Frame: Frame})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { hb.Close() })
	return New(Options{Hub: hb, Access: acc, CORSOrigins: []string{"*"}}), secret.Reveal()
}

// sane checks what is true of every response.
func sane(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code >= 500 || w.Code >= 300 && w.Code < 400 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if !requestIDs.MatchString(w.Header().Get("X-Request-Id")) || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Ratelimit-Limit") == "" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if w.Code >= 400 && !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
}

func FuzzPath(f *testing.F) {
	h, key := fuzzed(f)
	for _, p := range []string{"/v1/streams", "/v1//x", "/v1/streams/%2e%2e/..", "/v1/streams/a%2fb/%70ublish", "/v1/streams/abc%00/batches/1", "/v1/health/", "/v1/streams/0000000000000000000000/9?limit=%zz&;"} {
		f.Add("GET", p)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || method == "" {
			return
		}
		r := &http.Request{Method: method, URL: u, Header: http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "1.2.3.4:5"}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		sane(t, w)
	})
}

func FuzzAuthorization(f *testing.F) {
	h, key := fuzzed(f)
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
		h.ServeHTTP(w, r)
		sane(t, w)
		if w.Code == 200 && (two != "" || len(one) < len("Bearer ")+len(key)) || w.Code != 200 && w.Code != 401 {
			t.Fatalf("%q, %q: %d", one, two, w.Code)
		}
	})
}

func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "9007199254740991", "9007199254740992", "01", "head"} {
		f.Add(s, "cursor="+s)
	}
	f.Fuzz(func(t *testing.T, last, query string) {
		c := &call{r: &http.Request{Header: http.Header{"Last-Event-Id": {last}}, URL: &url.URL{RawQuery: query}}}
		from, err := c.from()
		if err != nil {
			if code(err) != weir.InvalidRequest {
				t.Fatal(err)
			}
			return
		}
		if seq, err := weir.ParseSeq(last); last != "" && (err != nil || from != hub.After(seq)) {
			t.Fatalf("Last-Event-ID %q parses as %+v", last, from)
		}
	})
}
