package contract

import "fmt"

// Requests with several faults are answered by the first check that finds one.
var orderCases = []Case{
	{"key first", `D19: "key present → matches the pattern → known → …": before anything about the stream or the body`, func(t *T) {
		bad := announced("text/plain", bodyLimit+1)
		for _, path := range []string{"/v1/streams/short/publish", nextPath(newID()), "/v1/streams/short/x"} {
			t.post(path, bad, key("")).refused(401, "missing_api_key")
			t.post(path, bad, key("svc_live_x")).refused(401, "invalid_api_key")
			t.post(path, bad, key(unknownKey)).refused(401, "invalid_api_key")
		}
	}},
	{"stream before body", `D19: "stream id well formed (400) → stream exists (404) → same project (403) → scope (403) → content type (415)"`, func(t *T) {
		s := t.jsonStream()
		bad := announced("text/plain", bodyLimit+1)
		for _, tail := range []string{"/publish", "/x", "/1", "/9999"} {
			t.post("/v1/streams/short"+tail, bad).refused(400, "invalid_stream_id")
			t.post("/v1/streams/"+newID()+tail, bad).refused(404, "stream_not_found")
			t.post("/v1/streams/"+s.ID+tail, bad, key(t.OtherLive)).refused(403, "project_forbidden")
		}
		sse := header("Accept", "text/event-stream")
		t.get("/v1/streams/short?cursor=x", sse).refused(400, "invalid_stream_id")
		t.get("/v1/streams/"+newID()+"?cursor=x", sse).refused(404, "stream_not_found")
		t.get("/v1/streams/"+s.ID+"?cursor=x", sse, key(t.OtherLive)).refused(403, "project_forbidden")
		t.get("/v1/streams/"+s.ID+"/batches/x", key(t.OtherLive)).refused(403, "project_forbidden")
		if t.NewKey != nil {
			k, revoke := t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
			t.post(nextPath(s.ID), bad, key(k)).refused(403, "project_forbidden")
			revoke()
			t.post("/v1/streams/short/publish", bad, key(k)).refused(401, "key_revoked")
		}
	}},
	{"type, size, sequence, body", `D19: "content type (415) → declared size (413) → sequence (409, 422, or 200 for a duplicate) → body (413, 400)"`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 5, `[]`)
		tooLarge := func(ct string) option { return announced(ct, bodyLimit+1) }
		for _, seq := range []string{"5", "x", "9999", "6", "publish"} {
			path := "/v1/streams/" + s.ID + "/" + seq
			t.post(path, tooLarge("text/plain")).refused(415, "unsupported_media_type")
			t.post(path, tooLarge("application/json")).refused(413, "payload_too_large")
			t.post(path, body("text/plain", []byte(`broken`))).refused(415, "unsupported_media_type")
		}
		broken := jsonBody(`broken`)
		t.post(seqPath(s.ID, 5), broken).want(200)
		t.post("/v1/streams/"+s.ID+"/x", broken).refused(409, "invalid_sequence")
		t.post(seqPath(s.ID, 9999), broken).refused(422, "sequence_too_far_ahead")
		t.post(seqPath(s.ID, 6), broken).refused(400, "invalid_request_error")
		t.post(seqPath(s.ID, 0), broken).refused(409, "invalid_sequence")
	}},
	{"refusals need no body", `D19: "none of these needs the body"`, func(t *T) {
		s := t.jsonStream()
		silent := announced("application/json", 100)
		for path, want := range map[string]string{
			"/v1/streams/short/publish": "invalid_stream_id", nextPath(newID()): "stream_not_found",
			"/v1/streams/" + s.ID + "/x": "invalid_sequence", seqPath(s.ID, 5000): "sequence_too_far_ahead",
		} {
			t.post(path, silent).refused(faults[want].status, want)
		}
		t.post(nextPath(s.ID), silent, key("")).refused(401, "missing_api_key")
		t.post(nextPath(s.ID), silent, key(t.OtherLive)).refused(403, "project_forbidden")
		t.post(nextPath(s.ID), announced("text/plain", 100)).refused(415, "unsupported_media_type")
	}},
	{"declared before read", `D19: "declared size (413) → sequence": without a declared size the sequence is first`, func(t *T) {
		s := t.rawStream()
		large := rawBody(make([]byte, bodyLimit+1))
		t.post("/v1/streams/"+s.ID+"/x", large).refused(413, "payload_too_large")
		t.post("/v1/streams/"+s.ID+"/x", large, undeclared()).refused(409, "invalid_sequence")
		t.post(seqPath(s.ID, 5000), large, undeclared()).refused(422, "sequence_too_far_ahead")
	}},
	{"create", `D19, D10: content type (415), declared size (413), then the body`, func(t *T) {
		t.post("/v1/streams", announced("text/plain", 1<<30)).refused(415, "unsupported_media_type")
		t.post("/v1/streams", announced("application/json", 1<<30)).refused(413, "payload_too_large")
		t.post("/v1/streams", announced("application/json", 1<<30), key("")).refused(401, "missing_api_key")
	}},
	{"routes after keys", `D19: "without one an unknown route is 401, with one 404 or 405"`, func(t *T) {
		for _, path := range []string{"/v1/nowhere", "/v1/streams/", "/v1//streams", "/v1"} {
			t.get(path, key("")).refused(401, "missing_api_key")
			t.get(path, key(unknownKey)).refused(401, "invalid_api_key")
			t.get(path).refused(404, "not_found")
		}
		t.do("PUT", "/v1/streams", key("")).refused(401, "missing_api_key")
		t.do("PUT", "/v1/streams").refused(405, "method_not_allowed")
	}},
	{"faults of lists", `D19: the key is checked before parameters`, func(t *T) {
		t.get("/v1/streams?limit=0", key("")).refused(401, "missing_api_key")
		t.get(fmt.Sprintf("/v1/streams?limit=%d", 0)).refused(400, "invalid_request_error")
	}},
}
