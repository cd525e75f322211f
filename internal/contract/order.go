package contract

import "fmt"

// orderCases send requests with several faults. The response must be about the fault that is
// checked first.
var orderCases = []Case{
	{"key first", `D19: the server first checks that the key is present, well-formed and known; then it checks the stream, then the body`, func(t *T) {
		bad := announced("text/plain", BodyLimit+1)
		for _, path := range []string{"/v1/streams/short/publish", NextPath(NewID()), "/v1/streams/short/x"} {
			t.Post(path, bad, WithKey("")).Refused(401, "missing_api_key")
			t.Post(path, bad, WithKey("svc_live_x")).Refused(401, "invalid_api_key")
			t.Post(path, bad, WithKey(unknownKey)).Refused(401, "invalid_api_key")
		}
	}},
	{"stream before body", `D19: the checks come in this order: stream id is valid (400), stream exists (404), same project (403), scope (403), content type (415)`, func(t *T) {
		s := t.jsonStream()
		bad := announced("text/plain", BodyLimit+1)
		for _, tail := range []string{"/publish", "/x", "/1", "/9999"} {
			t.Post("/v1/streams/short"+tail, bad).Refused(400, "invalid_stream_id")
			t.Post("/v1/streams/"+NewID()+tail, bad).Refused(404, "stream_not_found")
			t.Post("/v1/streams/"+s.ID+tail, bad, WithKey(t.OtherLive)).Refused(403, "project_forbidden")
		}
		sse := WithHeader("Accept", "text/event-stream")
		t.Get("/v1/streams/short?cursor=x", sse).Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/"+NewID()+"?cursor=x", sse).Refused(404, "stream_not_found")
		t.Get("/v1/streams/"+s.ID+"?cursor=x", sse, WithKey(t.OtherLive)).Refused(403, "project_forbidden")
		t.Get("/v1/streams/"+s.ID+"/batches/x", WithKey(t.OtherLive)).Refused(403, "project_forbidden")
		if t.NewKey != nil {
			k, revoke := t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
			t.Post(NextPath(s.ID), bad, WithKey(k)).Refused(403, "project_forbidden")
			revoke()
			t.Post("/v1/streams/short/publish", bad, WithKey(k)).Refused(401, "key_revoked")
		}
	}},
	{"type, size, sequence, body", `D19: the checks come in this order: content type (415), declared size (413), sequence (409, 422, or 200 for a duplicate), body (413, 400)`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 5, `[]`)
		tooLarge := func(ct string) Option { return announced(ct, BodyLimit+1) }
		for _, seq := range []string{"5", "x", "9999", "6", "publish"} {
			path := "/v1/streams/" + s.ID + "/" + seq
			t.Post(path, tooLarge("text/plain")).Refused(415, "unsupported_media_type")
			t.Post(path, tooLarge("application/json")).Refused(413, "payload_too_large")
			t.Post(path, body("text/plain", []byte(`broken`))).Refused(415, "unsupported_media_type")
		}
		broken := JSONBody(`broken`)
		t.Post(SeqPath(s.ID, 5), broken).Want(200)
		t.Post("/v1/streams/"+s.ID+"/x", broken).Refused(409, "invalid_sequence")
		t.Post(SeqPath(s.ID, 9999), broken).Refused(422, "sequence_too_far_ahead")
		t.Post(SeqPath(s.ID, 6), broken).Refused(400, "invalid_request_error")
		t.Post(SeqPath(s.ID, 0), broken).Refused(409, "invalid_sequence")
	}},
	{"refusals need no body", `D19: the checks of key, stream id, content type and sequence do not need the body`, func(t *T) {
		s := t.jsonStream()
		silent := announced("application/json", 100)
		for path, want := range map[string]string{
			"/v1/streams/short/publish": "invalid_stream_id", NextPath(NewID()): "stream_not_found",
			"/v1/streams/" + s.ID + "/x": "invalid_sequence", SeqPath(s.ID, 5000): "sequence_too_far_ahead",
		} {
			t.Post(path, silent).Refused(faults[want].status, want)
		}
		t.Post(NextPath(s.ID), silent, WithKey("")).Refused(401, "missing_api_key")
		t.Post(NextPath(s.ID), silent, WithKey(t.OtherLive)).Refused(403, "project_forbidden")
		t.Post(NextPath(s.ID), announced("text/plain", 100)).Refused(415, "unsupported_media_type")
	}},
	{"declared before read", `D19: a declared size is checked before the sequence, an undeclared size after the sequence`, func(t *T) {
		s := t.rawStream()
		large := RawBody(make([]byte, BodyLimit+1))
		t.Post("/v1/streams/"+s.ID+"/x", large).Refused(413, "payload_too_large")
		t.Post("/v1/streams/"+s.ID+"/x", large, undeclared()).Refused(409, "invalid_sequence")
		t.Post(SeqPath(s.ID, 5000), large, undeclared()).Refused(422, "sequence_too_far_ahead")
	}},
	{"create", `D19, D10: the server checks the content type (415), then the declared size (413), then the body`, func(t *T) {
		t.Post("/v1/streams", announced("text/plain", 1<<30)).Refused(415, "unsupported_media_type")
		t.Post("/v1/streams", announced("application/json", 1<<30)).Refused(413, "payload_too_large")
		t.Post("/v1/streams", announced("application/json", 1<<30), WithKey("")).Refused(401, "missing_api_key")
	}},
	{"routes after keys", `D19: an unknown route gives 401 without a key, and 404 or 405 with one`, func(t *T) {
		for _, path := range []string{"/v1/nowhere", "/v1/streams/", "/v1//streams", "/v1"} {
			t.Get(path, WithKey("")).Refused(401, "missing_api_key")
			t.Get(path, WithKey(unknownKey)).Refused(401, "invalid_api_key")
			t.Get(path).Refused(404, "not_found")
		}
		t.do("PUT", "/v1/streams", WithKey("")).Refused(401, "missing_api_key")
		t.do("PUT", "/v1/streams").Refused(405, "method_not_allowed")
	}},
	{"list parameters", `D19: the key is checked before the parameters`, func(t *T) {
		t.Get("/v1/streams?limit=0", WithKey("")).Refused(401, "missing_api_key")
		t.Get(fmt.Sprintf("/v1/streams?limit=%d", 0)).Refused(400, "invalid_request_error")
	}},
}
