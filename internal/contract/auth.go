package contract

import (
	"strings"
	"time"
)

const unknownKey = "svc_live_00112233445566778899aabbccddeeff"

var authCases = []Case{
	{"no key", `spec: "No key sent: 401 authentication_error missing_api_key"; D19: "No Authorization header, or one that is empty"`, func(t *T) {
		s := t.jsonStream()
		for _, o := range []option{key(""), header("Authorization", ""), header("Authorization", "  ")} {
			t.eachOfStream(s.ID, func(a *Answer) { a.refused(401, "missing_api_key") }, o)
			t.get("/v1/streams", o).refused(401, "missing_api_key")
			t.post("/v1/streams", jsonBody(`{"name":"x"}`), o).refused(401, "missing_api_key")
		}
	}},
	{"malformed keys", `spec: "A value that does not match the pattern is rejected with invalid_api_key"; D19: "any other scheme or value that does not match, also two Authorization headers"`, func(t *T) {
		hex := t.Live[len("svc_live_"):]
		for _, v := range []string{
			"Bearer svc_live_" + hex[1:], "Bearer svc_live_" + hex + "0", "Bearer svc_live_" + strings.ToUpper("abcdef"+hex[6:]), "Bearer svc_prod_" + hex,
			"Bearer SVC_live_" + hex, "Bearer svc-live-" + hex, "Bearer " + hex, "Bearer x", "Bearer", "Bearer svc_live_" + hex[:31] + "g", "Bearer  " + t.Live,
			"Bearer\t" + t.Live, "Basic dXNlcjpwYXNz", "Basic " + t.Live, t.Live, "Token " + t.Live, "Bearer " + t.Live + " x", "Bearer " + t.Live + "," + t.Live,
			"Bearer svc_live_" + strings.Repeat("０", 32), "Bearer " + t.Live + "\u00a0", "Bearer \"" + t.Live + "\"", "Bearer=" + t.Live,
		} {
			t.get("/v1/streams", header("Authorization", v)).refused(401, "invalid_api_key")
		}
		t.get("/v1/streams", header("Authorization", "Bearer "+t.Live, "Bearer "+t.Live)).refused(401, "invalid_api_key")
		t.get("/v1/streams", header("Authorization", "Bearer "+t.Live, "")).refused(401, "invalid_api_key")
	}},
	{"unknown keys", `spec: "Key malformed or unknown: 401 authentication_error invalid_api_key"`, func(t *T) {
		s := t.jsonStream()
		for _, k := range []string{unknownKey, "svc_test_" + t.Live[len("svc_live_"):], "svc_live_" + t.Test[len("svc_test_"):]} {
			t.eachOfStream(s.ID, func(a *Answer) { a.refused(401, "invalid_api_key") }, key(k))
		}
	}},
	{"scheme", `D19: "The scheme's case does not matter"`, func(t *T) {
		for _, scheme := range []string{"bearer ", "BEARER ", "bEaReR "} {
			t.get("/v1/streams?limit=1", header("Authorization", scheme+t.Live)).want(200)
		}
	}},
	{"only the header", `spec: "Every request is authenticated by the header Authorization"; D29: "No cookie is ever honoured"`, func(t *T) {
		t.get("/v1/streams?api_key="+t.Live+"&access_token="+t.Live+"&key="+t.Live, key("")).refused(401, "missing_api_key")
		t.get("/v1/streams", key(""), header("Cookie", "key="+t.Live+"; session="+t.Live)).refused(401, "missing_api_key")
		t.get("/v1/streams", key(""), header("X-Api-Key", t.Live), header("Proxy-Authorization", "Bearer "+t.Live)).refused(401, "missing_api_key")
	}},
	{"public", `spec: "Public, needing no key: GET /v1/health, GET /v1/version"`, func(t *T) {
		for _, path := range []string{"/v1/health", "/v1/version"} {
			for _, o := range []option{key(""), key(t.Live), key(unknownKey), header("Authorization", "nonsense"), header("Authorization", "a", "b")} {
				t.get(path, o).want(200)
			}
		}
	}},
	{"another project", `spec: "Using it against a stream of another project gives 403 project_forbidden. This differs from 404"`, func(t *T) {
		s := t.jsonStream()
		t.publish(s.ID, `["secret"]`)
		t.eachOfStream(s.ID, func(a *Answer) {
			a.refused(403, "project_forbidden")
			if strings.Contains(string(a.Body), "secret") {
				t.Errorf("%s: shows what it refuses", a.request)
			}
		}, key(t.OtherLive))
		t.eachOfStream(newID(), func(a *Answer) { a.refused(404, "stream_not_found") }, key(t.OtherLive))
		if got := t.stream(s.ID).Cursor; got != 1 {
			t.Errorf("cursor %d", got)
		}
	}},
	{"test keys", `D20: "A plain live or test key has all three on its whole project"`, func(t *T) {
		s := t.createBody(`{"name":"by a test key"}`, key(t.Test))
		t.publish(s.ID, `[1]`, key(t.Test))
		t.get("/v1/streams/"+s.ID, key(t.Test)).want(200)
		t.subscribe(s.ID, "cursor=0", key(t.Test)).batch(1)
		t.get("/v1/streams/"+s.ID, key(t.Live)).want(200) // the project is the same
		t.delete("/v1/streams/"+s.ID, key(t.Test)).want(204)
	}},
	{"refusals hide keys", `spec: error.message is "Human-readable text"; no key appears in it`, func(t *T) {
		for _, k := range []string{unknownKey, "svc_live_malformed_secret"} {
			if a := t.get("/v1/streams", key(k)); strings.Contains(string(a.Body), k) {
				t.Errorf("the refusal repeats the key")
			}
		}
	}},
	{"revoked", `spec: "A revoked key gets 401 key_revoked on its next use"`, func(t *T) {
		k, revoke := t.newKey(Key{Kind: "live"})
		s := t.jsonStream()
		t.publish(s.ID, `[]`, key(k))
		revoke()
		t.eachOfStream(s.ID, func(a *Answer) { a.refused(401, "key_revoked") }, key(k))
		t.get("/v1/streams", key(k)).refused(401, "key_revoked")
		t.get("/v1/health", key(k)).want(200)
	}},
	{"revoked while subscribed", `D18: "when its key is revoked, the connection ends within 2 s"`, func(t *T) {
		k, revoke := t.newKey(Key{Kind: "live", Permissions: []string{"read"}})
		s := t.jsonStream()
		idle, busy, other := t.subscribe(s.ID, "", key(k)), t.subscribe(s.ID, "cursor=0", key(k)), t.subscribe(s.ID, "")
		t.publish(s.ID, `[1]`)
		idle.batch(1)
		busy.batch(1)
		revoke()
		idle.closed(2*time.Second + slack)
		busy.closed(2*time.Second + slack)
		other.batch(1)
		t.publish(s.ID, `[2]`)
		other.batch(2)
	}},
	{"rotation", `spec: "issue a new key, deploy it, revoke the old one": keys of a project do not depend on each other`, func(t *T) {
		old, revoke := t.newKey(Key{Kind: "live"})
		s := t.createBody(`{"name":"rotated"}`, key(old))
		fresh, _ := t.newKey(Key{Kind: "live"})
		revoke()
		t.publish(s.ID, `[1]`, key(fresh))
		t.subscribe(s.ID, "cursor=0", key(fresh)).batch(1)
	}},
}

// slack is what a busy machine may add to a promise of seconds.
const slack = 3 * time.Second

// newKey makes a key, or skips the case where that is not possible.
func (t *T) newKey(k Key) (string, func()) {
	t.Helper()
	if t.NewKey == nil {
		t.Skip("keys can not be made on this target")
	}
	return t.NewKey(t.T, k)
}
