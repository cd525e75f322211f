package contract

import (
	"net/http"
	"slices"
	"strings"
)

var routeCases = []Case{
	{"no such route", `D26: not_found (404) for an unknown route; D30: a path with a trailing slash is not a route`, func(t *T) {
		s := t.jsonStream()
		path := "/v1/streams/" + s.ID
		for _, p := range []string{"/v1", "/v1/", "/v1/nowhere", "/v1/Streams", "/v1/health/", "/v1/version/x", "/v1/streams/", path + "/", path + "/cursor/", path + "/cursor/x",
			path + "/batches/", path + "/batches/1/", path + "/batches/1/x", path + "/nothing/1", "/v1//streams", "/v1/streams//cursor", "/v1/./streams", "/v1/x/../streams",
			"/v1/streams/../../etc/passwd", "/v1/%73treams/", "/v1/keys", "/v1/projects"} {
			t.Get(p).Refused(404, "not_found")
		}
		for _, p := range []string{path + "/publish/", path + "/1/2", "/v1/streams//publish", "/v1//streams/" + s.ID + "/publish", path + "//1", path + "/"} {
			t.Post(p, JSONBody(`{"events":[]}`)).Refused(404, "not_found")
		}
		t.Delete(path+"/").Refused(404, "not_found")
	}},
	{"dot segments", `D30: the server does not resolve dot segments in a path: it takes .. for a stream id, which is invalid`, func(t *T) {
		t.Get("/v1/streams/..").Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/../cursor").Refused(400, "invalid_stream_id")
		t.Post("/v1/streams/../publish", JSONBody(`{"events":[]}`)).Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/../health").Refused(405, "method_not_allowed") // matches /v1/streams/{id}/{seq}
	}},
	{"outside /v1", `spec: "Every path below begins with /v1": other versions and other spellings of /v1 are not routes, and nothing redirects`, func(t *T) {
		for _, p := range []string{"/V1/streams", "/v2/streams", "/v1x", "/v1.0/streams"} {
			if a := t.Get(p); a.Status != 404 {
				t.Errorf("%s: got %d, want 404", p, a.Status)
			}
		}
	}},
	{"method not allowed", `D26: method_not_allowed (405) with the allow field`, func(t *T) {
		s := t.jsonStream()
		path := "/v1/streams/" + s.ID
		for _, r := range []struct {
			path  string
			wrong []string
			allow []string
		}{
			{"/v1/health", []string{"POST", "PUT", "PATCH", "DELETE"}, []string{"GET", "HEAD"}},
			{"/v1/version", []string{"POST", "PUT", "PATCH", "DELETE"}, []string{"GET", "HEAD"}},
			{"/v1/streams", []string{"PUT", "PATCH", "DELETE"}, []string{"GET", "HEAD", "POST"}},
			{path, []string{"POST", "PUT"}, []string{"GET", "HEAD", "PATCH", "DELETE"}},
			{path + "/publish", []string{"GET", "HEAD", "PUT", "PATCH", "DELETE"}, []string{"POST"}},
			{path + "/1", []string{"GET", "HEAD", "PUT", "PATCH", "DELETE"}, []string{"POST"}},
			{path + "/cursor", []string{"PUT", "PATCH", "DELETE"}, []string{"GET", "HEAD"}},
			{path + "/batches", []string{"PUT", "PATCH", "DELETE"}, []string{"GET", "HEAD"}},
			{path + "/batches/1", []string{"POST", "PUT", "PATCH", "DELETE"}, []string{"GET", "HEAD"}},
		} {
			for _, m := range append(r.wrong, "PURGE", "get") {
				a := t.do(m, r.path).Want(405)
				if m != "HEAD" {
					a.Refused(405, "method_not_allowed")
				}
				got := strings.Split(strings.ReplaceAll(a.Header.Get("Allow"), " ", ""), ",")
				for _, want := range r.allow {
					if !slices.Contains(got, want) {
						t.Errorf("%s %s: allow is %v, without %s", m, r.path, got, want)
					}
				}
				if slices.Contains(got, m) {
					t.Errorf("%s %s: got 405, but allow lists the method: %v", m, r.path, got)
				}
			}
		}
		t.Stream(s.ID)
	}},
	{"HEAD", `D30: HEAD works wherever GET does`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		path := "/v1/streams/" + s.ID
		for _, p := range []string{"/v1/health", "/v1/version", "/v1/streams", path, path + "/cursor", path + "/batches", path + "/batches?from=x", path + "/batches/1", path + "/batches/2", "/v1/streams/" + NewID(), "/v1/streams/short", "/v1/nowhere", "/v1/streams?limit=0"} {
			g, h := t.Get(p), t.do(http.MethodHead, p)
			if g.Status != h.Status || g.Header.Get("Content-Type") != h.Header.Get("Content-Type") {
				t.Errorf("%s: GET is %d %s, HEAD %d %s", p, g.Status, g.Header.Get("Content-Type"), h.Status, h.Header.Get("Content-Type"))
			}
		}
		t.do(http.MethodHead, path, WithKey("")).Want(401)
	}},
	{"escapes in paths", `spec: ids and sequences are plain text: a percent-escape in a path stands for its character and bypasses no check`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		t.Get("/v1/streams/%" + strings.ToLower(hexOf(s.ID[0])) + s.ID[1:]).Want(200)
		t.Get("/v1/streams/"+s.ID+"%2Fcursor").Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/"+s.ID+"%2f..%2f"+s.ID).Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/"+s.ID+"%00").Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/" + s.ID + "/batches/%31").Want(200)
	}},
	{"long paths", `spec: an id is 22 characters, however long the path is`, func(t *T) {
		t.Get("/v1/streams/"+strings.Repeat("x", 4000)).Refused(400, "invalid_stream_id")
		t.Get("/v1/"+strings.Repeat("x", 4000)).Refused(404, "not_found")
	}},
}

func hexOf(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}
