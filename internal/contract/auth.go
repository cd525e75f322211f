package contract

import (
	"strings"
	"time"
)

const unknownKey = "svc_live_00112233445566778899aabbccddeeff"

var authCases = []Case{
	{"no key", `spec: "No key sent: 401 authentication_error missing_api_key"; D19: an empty Authorization header counts as none`, func(t *T) {
		s := t.jsonStream()
		for _, o := range []Option{WithKey(""), WithHeader("Authorization", ""), WithHeader("Authorization", "  ")} {
			t.eachOfStream(s.ID, func(a *Answer) { a.Refused(401, "missing_api_key") }, o)
			t.Get("/v1/streams", o).Refused(401, "missing_api_key")
			t.Post("/v1/streams", JSONBody(`{"name":"x"}`), o).Refused(401, "missing_api_key")
		}
	}},
	{"malformed keys", `spec: "A value that does not match the pattern is rejected with invalid_api_key"; D19: any other scheme and a second Authorization header are rejected in the same way`, func(t *T) {
		hex := t.Live[len("svc_live_"):]
		for _, v := range []string{
			"Bearer svc_live_" + hex[1:], "Bearer svc_live_" + hex + "0", "Bearer svc_live_" + strings.ToUpper("abcdef"+hex[6:]), "Bearer svc_prod_" + hex,
			"Bearer SVC_live_" + hex, "Bearer svc-live-" + hex, "Bearer " + hex, "Bearer x", "Bearer", "Bearer svc_live_" + hex[:31] + "g", "Bearer  " + t.Live,
			"Bearer\t" + t.Live, "Basic dXNlcjpwYXNz", "Basic " + t.Live, t.Live, "Token " + t.Live, "Bearer " + t.Live + " x", "Bearer " + t.Live + "," + t.Live,
			"Bearer svc_live_" + strings.Repeat("０", 32), "Bearer " + t.Live + "\u00a0", "Bearer \"" + t.Live + "\"", "Bearer=" + t.Live,
		} {
			t.Get("/v1/streams", WithHeader("Authorization", v)).Refused(401, "invalid_api_key")
		}
		t.Get("/v1/streams", WithHeader("Authorization", "Bearer "+t.Live, "Bearer "+t.Live)).Refused(401, "invalid_api_key")
		t.Get("/v1/streams", WithHeader("Authorization", "Bearer "+t.Live, "")).Refused(401, "invalid_api_key")
	}},
	{"unknown keys", `spec: "Key malformed or unknown: 401 authentication_error invalid_api_key"`, func(t *T) {
		s := t.jsonStream()
		for _, k := range []string{unknownKey, "svc_test_" + t.Live[len("svc_live_"):], "svc_live_" + t.Test[len("svc_test_"):]} {
			t.eachOfStream(s.ID, func(a *Answer) { a.Refused(401, "invalid_api_key") }, WithKey(k))
		}
	}},
	{"the scheme is case-insensitive", `D19: the case of the scheme does not matter`, func(t *T) {
		for _, scheme := range []string{"bearer ", "BEARER ", "bEaReR "} {
			t.Get("/v1/streams?limit=1", WithHeader("Authorization", scheme+t.Live)).Want(200)
		}
	}},
	{"only the Authorization header", `spec: "Every request is authenticated by the header Authorization"; D29: cookies are never honoured`, func(t *T) {
		t.Get("/v1/streams?api_key="+t.Live+"&access_token="+t.Live+"&key="+t.Live, WithKey("")).Refused(401, "missing_api_key")
		t.Get("/v1/streams", WithKey(""), WithHeader("Cookie", "key="+t.Live+"; session="+t.Live)).Refused(401, "missing_api_key")
		t.Get("/v1/streams", WithKey(""), WithHeader("X-Api-Key", t.Live), WithHeader("Proxy-Authorization", "Bearer "+t.Live)).Refused(401, "missing_api_key")
	}},
	{"public endpoints", `spec: "Public, needing no key: GET /v1/health, GET /v1/version"`, func(t *T) {
		for _, path := range []string{"/v1/health", "/v1/version"} {
			for _, o := range []Option{WithKey(""), WithKey(t.Live), WithKey(unknownKey), WithHeader("Authorization", "nonsense"), WithHeader("Authorization", "a", "b")} {
				t.Get(path, o).Want(200)
			}
		}
	}},
	{"another project", `spec: "Using it against a stream of another project gives 403 project_forbidden. This differs from 404"`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["secret"]`)
		t.eachOfStream(s.ID, func(a *Answer) {
			a.Refused(403, "project_forbidden")
			if strings.Contains(string(a.Body), "secret") {
				t.Errorf("%s: the error contains the batch's events", a.request)
			}
		}, WithKey(t.OtherLive))
		t.eachOfStream(NewID(), func(a *Answer) { a.Refused(404, "stream_not_found") }, WithKey(t.OtherLive))
		if got := t.Stream(s.ID).Cursor; got != 1 {
			t.Errorf("cursor is %d, want 1", got)
		}
	}},
	{"test keys", `D20: a live or test key without a scope has all three permissions on its whole project`, func(t *T) {
		s := t.CreateBody(`{"name":"by a test key"}`, WithKey(t.Test))
		t.Publish(s.ID, `[1]`, WithKey(t.Test))
		t.Get("/v1/streams/"+s.ID, WithKey(t.Test)).Want(200)
		t.Subscribe(s.ID, "cursor=0", WithKey(t.Test)).Batch(1)
		t.Get("/v1/streams/"+s.ID, WithKey(t.Live)).Want(200) // a live key of the same project
		t.Delete("/v1/streams/"+s.ID, WithKey(t.Test)).Want(204)
	}},
	{"errors do not repeat the key", `spec: error.message is "Human-readable text"; no key appears in it`, func(t *T) {
		for _, k := range []string{unknownKey, "svc_live_malformed_secret"} {
			if a := t.Get("/v1/streams", WithKey(k)); strings.Contains(string(a.Body), k) {
				t.Errorf("the error repeats the key")
			}
		}
	}},
	{"revoked key", `spec: "A revoked key gets 401 key_revoked on its next use"`, func(t *T) {
		k, revoke := t.newKey(Key{Kind: "live"})
		s := t.jsonStream()
		t.Publish(s.ID, `[]`, WithKey(k))
		revoke()
		t.eachOfStream(s.ID, func(a *Answer) { a.Refused(401, "key_revoked") }, WithKey(k))
		t.Get("/v1/streams", WithKey(k)).Refused(401, "key_revoked")
		t.Get("/v1/health", WithKey(k)).Want(200)
	}},
	{"revoked while subscribed", `D18: a subscription ends within 2 s of the revocation of its key`, func(t *T) {
		k, revoke := t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
		s := t.jsonStream()
		idle, busy, other := t.Subscribe(s.ID, "", WithKey(k)), t.Subscribe(s.ID, "cursor=0", WithKey(k)), t.Subscribe(s.ID, "")
		t.Publish(s.ID, `[1]`)
		idle.Batch(1)
		busy.Batch(1)
		revoke()
		idle.Closed(2*time.Second + slack)
		busy.Closed(2*time.Second + slack)
		other.Batch(1)
		t.Publish(s.ID, `[2]`)
		other.Batch(2)
	}},
	{"key rotation", `spec: "issue a new key, deploy it, revoke the old one": the keys of a project are independent of each other`, func(t *T) {
		old, revoke := t.newKey(Key{Kind: "live"})
		s := t.CreateBody(`{"name":"rotated"}`, WithKey(old))
		fresh, _ := t.newKey(Key{Kind: "live"})
		revoke()
		t.Publish(s.ID, `[1]`, WithKey(fresh))
		t.Subscribe(s.ID, "cursor=0", WithKey(fresh)).Batch(1)
	}},
}

// slack is the delay that a busy machine may add to a promised time.
const slack = 3 * time.Second

// newKey creates a key. It skips the case if the target cannot create keys.
func (t *T) newKey(k Key) (string, func()) {
	t.Helper()
	if t.NewKey == nil {
		t.Skip("this target cannot create keys")
	}
	return t.NewKey(t.T, k)
}
