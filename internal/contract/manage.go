package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// managed is the object of a key under /manage/v1.
type managed struct {
	ID          string   `json:"id"`
	Project     string   `json:"project"`
	Kind        string   `json:"kind"`
	Name        string   `json:"name"`
	Masked      string   `json:"masked"`
	Permissions []string `json:"permissions"`
	Streams     []string `json:"streams"`
	CreatedAt   string   `json:"created_at"`
	LastUsedAt  *string  `json:"last_used_at"`
	RevokeAt    *string  `json:"revoke_at"`
	RevokedAt   *string  `json:"revoked_at"`
}

// madeKey is the object of a key in the response to its creation.
type madeKey struct {
	managed
	Key string
}

// project is the object of a project under /manage/v1.
type project struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	CreatedAt string `json:"created_at"`
}

// managedPage is a page of a list under /manage/v1.
type managedPage[T any] struct {
	Data       []T     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// newToken creates a management token. It skips the case if the target cannot create tokens.
func newToken(t *T) (Option, func()) {
	t.Helper()
	if t.NewToken == nil {
		t.Skip("this target cannot create management tokens")
	}
	token, revoke := t.NewToken(t.T)
	return WithKey(token), revoke
}

// newProject creates a project with a unique name and returns its id.
func newProject(t *T, o Option) string {
	t.Helper()
	var p project
	t.Post("/manage/v1/projects", JSONBody(fmt.Sprintf(`{"name":%q}`, "project "+NewID())), o).Want(201).decode(&p)
	return p.ID
}

// next returns the query parameter that asks for the next page.
func (p *managedPage[T]) next() string {
	if p.NextCursor == nil {
		return ""
	}
	return "&cursor=" + *p.NextCursor
}

// createKey creates a key and returns its object.
func createKey(t *T, body string, options ...Option) madeKey {
	t.Helper()
	return t.Post("/manage/v1/keys", append([]Option{JSONBody(body)}, options...)...).Want(201).madeKey()
}

// madeKey decodes the response to the creation of a key.
func (a *Answer) madeKey() madeKey {
	a.t.Helper()
	var made struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(a.Body, &made); err != nil {
		a.t.Fatalf("%s: %v", a.request, err)
	}
	k := madeKey{Key: made.Key}
	rest := *a
	rest.Body = bytes.Replace(a.Body, []byte(`,"key":"`+made.Key+`"`), nil, 1)
	rest.decode(&k.managed)
	return k
}

// isRevoked checks that a key or token is refused because it was revoked. In a cluster, the other
// nodes may learn of the revocation 2 seconds later (D18).
func isRevoked(t *T, path string, o Option) {
	t.Helper()
	if t.Spread {
		Eventually(t, Patience, "all nodes know the revocation", func() bool { return t.Get(path, o).Status == 401 })
	}
	t.Get(path, o).Refused(401, "key_revoked")
}

// stated is the beginning of the statement that each case below checks.
const stated = `D36: `

var manageCases = []Case{
	{"tokens", stated + `requests need a management token, and an API key is not accepted; errors have the same shape as under /v1`, func(t *T) {
		o, revoke := newToken(t)
		for _, path := range []string{"/manage/v1/projects", "/manage/v1/keys", "/manage/v1/nowhere"} {
			t.Get(path, WithKey("")).Refused(401, "missing_api_key")
			t.Get(path, WithKey(t.Live)).Refused(401, "invalid_api_key")
			t.Get(path, WithKey("svc_mgmt_00112233445566778899aabbccddeeff")).Refused(401, "invalid_api_key")
			t.Get(path, WithHeader("Authorization", "Bearer svc_mgmt_x")).Refused(401, "invalid_api_key")
		}
		t.Get("/manage/v1/keys", o).Want(200)
		t.Get("/v1/streams", o).Refused(401, "invalid_api_key")
		t.Get("/manage/v1/nowhere", o).Refused(404, "not_found")
		t.Get("/manage/v1/keys/", o).Refused(404, "not_found")
		t.Get("/manage/v1/keys/x/y/z/u", o).Refused(404, "not_found")
		t.do("PUT", "/manage/v1/keys", o).Refused(405, "method_not_allowed")
		t.Get("/manage/v1/keys/x/revoke", o).Refused(405, "method_not_allowed")
		t.do("HEAD", "/manage/v1/projects", o).Want(200)
		revoke()
		isRevoked(t, "/manage/v1/keys", o)
	}},
	{"no CORS", stated + `a management token does not belong in a browser: responses have no CORS header fields`, func(t *T) {
		o, _ := newToken(t)
		origin := WithHeader("Origin", "https://elsewhere.example")
		for _, a := range []*Answer{
			t.Get("/manage/v1/keys", o, origin).Want(200),
			t.do("OPTIONS", "/manage/v1/keys", WithKey(""), origin, WithHeader("Access-Control-Request-Method", "POST")).Want(204),
		} {
			for name := range a.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: the response has %s", a.request, name)
				}
			}
		}
	}},
	{"projects", stated + `projects are created and listed; a repeated creation returns the same project`, func(t *T) {
		o, _ := newToken(t)
		var first, again project
		name := "project " + NewID()
		body := JSONBody(fmt.Sprintf(`{"name":%q}`, name))
		t.Post("/manage/v1/projects", body, o).Want(201).decode(&first)
		t.Post("/manage/v1/projects", JSONBody(fmt.Sprintf(`{"name":%q}`, name)), o).Want(200).decode(&again)
		if first != again || first.Name != name || !streamID.MatchString(first.ID) {
			t.Errorf("created %+v and then %+v", first, again)
		}
		found, cursor := false, ""
		for more := true; more && !found; {
			var page managedPage[project]
			t.Get("/manage/v1/projects?limit=100"+cursor, o).Want(200).decode(&page)
			for _, p := range page.Data {
				found = found || p.ID == first.ID
			}
			more, cursor = page.HasMore, page.next()
		}
		if !found {
			t.Error("the list lacks the new project")
		}
		for _, bad := range []string{`{}`, `{"name":1}`, `{"name":""}`, `{"name":"a\u0007"}`, `{"name":"demo"}`, `{"name":"x","more":1}`, `[]`, `{"name":"x"`, `{"name":"x"} {}`, ``} {
			t.Post("/manage/v1/projects", JSONBody(bad), o).Refused(400, "invalid_request_error")
		}
		t.Post("/manage/v1/projects", body, o, WithHeader("Content-Type", "text/plain")).Refused(415, "unsupported_media_type")
		t.Post("/manage/v1/projects", JSONBody(`{"name":"`+strings.Repeat("x", 1<<16)+`"}`), o).Refused(413, "payload_too_large")
	}},
	{"keys", stated + `a key is created with project, kind, name, permissions and streams, works within them, and is revoked`, func(t *T) {
		o, _ := newToken(t)
		project, id := newProject(t, o), NewID()
		all := createKey(t, fmt.Sprintf(`{"project":%q}`, project), o)
		if all.Kind != "live" || !strings.HasPrefix(all.Key, "svc_live_") || len(all.Permissions) != 3 || len(all.Streams) != 0 || all.RevokeAt != nil || all.RevokedAt != nil {
			t.Errorf("created %+v", all)
		}
		reader := createKey(t, fmt.Sprintf(`{"project":%q,"kind":"test","name":"reader","permissions":["read"],"streams":[%q]}`, project, id), o)
		if reader.Kind != "test" || !strings.HasPrefix(reader.Key, "svc_test_") || reader.Name != "reader" || !slices.Equal(reader.Permissions, []string{"read"}) || !slices.Equal(reader.Streams, []string{id}) {
			t.Errorf("created %+v", reader)
		}
		t.Post("/v1/streams", JSONBody(fmt.Sprintf(`{"name":"x","id":%q}`, id)), WithKey(all.Key)).Want(201)
		t.Get("/v1/streams/"+id, WithKey(reader.Key)).Want(200)
		t.Post("/v1/streams/"+id+"/publish", JSONBody(`{"events":[]}`), WithKey(reader.Key)).Refused(403, "project_forbidden")
		t.Get("/v1/streams/"+id, WithKey(t.Live)).Refused(403, "project_forbidden")

		var revoked managed
		t.Post("/manage/v1/keys/"+reader.ID+"/revoke", o).Want(200).decode(&revoked)
		if revoked.ID != reader.ID || revoked.RevokedAt == nil {
			t.Errorf("revoked %+v", revoked)
		}
		isRevoked(t, "/v1/streams/"+id, WithKey(reader.Key))
		t.Post("/manage/v1/keys/"+reader.ID+"/revoke", o).Want(200)
		t.Post("/manage/v1/keys/"+NewID()+"/revoke", o).Refused(404, "not_found")
		t.Post("/manage/v1/keys/demo/revoke", o).Refused(400, "invalid_request_error")
		t.Delete("/v1/streams/"+id, WithKey(all.Key)).Want(204)
		t.Post("/manage/v1/keys/"+all.ID+"/revoke", o).Want(200)
	}},
	{"listing keys", stated + `keys are listed, newest first and in pages, without the keys themselves`, func(t *T) {
		o, _ := newToken(t)
		project := newProject(t, o)
		made := map[string]bool{}
		for range 5 {
			made[createKey(t, fmt.Sprintf(`{"project":%q,"revoke_after":3600}`, project), o).ID] = true
		}
		var got []managed
		for cursor, more := "", true; more; {
			var page managedPage[managed]
			t.Get("/manage/v1/keys?limit=2&project="+project+cursor, o).Want(200).decode(&page)
			if got = append(got, page.Data...); len(page.Data) > 2 {
				t.Fatalf("a page has %d keys, want at most 2", len(page.Data))
			}
			more, cursor = page.HasMore, page.next()
		}
		seen := map[string]bool{}
		for i, k := range got {
			if seen[k.ID] = true; k.Project != project || i > 0 && k.CreatedAt > got[i-1].CreatedAt {
				t.Errorf("key %d of the list is %+v", i, k)
			}
		}
		if len(got) != 5 || !maps.Equal(seen, made) {
			t.Errorf("listed %v, want %v", seen, made)
		}
		for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?limit=1&limit=1", "?cursor=x", "?cursor=", "?project=x", "?project=" + project + "&project=" + project} {
			t.Get("/manage/v1/keys"+query, o).Refused(400, "invalid_request_error")
		}
		t.Get("/manage/v1/projects?cursor=x", o).Refused(400, "invalid_request_error")
	}},
	{"invalid keys", stated + `invalid settings are refused, and no error repeats what the client sent`, func(t *T) {
		o, _ := newToken(t)
		project := newProject(t, o)
		for _, bad := range []string{
			``, `[]`, `{}`, `{"project":1}`, `{"project":"CANARY"}`, `{"project":"CANARY0000000000000000"}`, `{"project":"$","kind":"CANARY"}`, `{"project":"$","kind":null}`,
			`{"project":"$","name":7}`, `{"project":"$","name":"a\u0000"}`, `{"project":"$","name":"svc_live_00112233445566778899aabbccddeeff"}`,
			`{"project":"$","permissions":[]}`, `{"project":"$","permissions":["CANARY"]}`, `{"project":"$","permissions":"read"}`, `{"project":"$","permissions":[1]}`,
			`{"project":"$","streams":[]}`, `{"project":"$","streams":["CANARY"]}`, `{"project":"$","streams":{}}`,
			`{"project":"$","revoke_after":0}`, `{"project":"$","revoke_after":-1}`, `{"project":"$","revoke_after":1.5}`, `{"project":"$","revoke_after":"1h"}`, `{"project":"$","revoke_after":31536001}`,
			`{"project":"$","CANARY":1}`, `{"project":"$","project":"$"}`, `{"project":"$"} x`,
		} {
			a := t.Post("/manage/v1/keys", JSONBody(strings.ReplaceAll(bad, "$", project)), o)
			a.Refused(400, "invalid_request_error")
			if strings.Contains(string(a.Body), "CANARY") {
				t.Errorf("the error for %s repeats a part of it: %s", bad, a.Body)
			}
		}
		t.Post("/manage/v1/keys", JSONBody(fmt.Sprintf(`{"project":%q}`, project)), o, WithHeader("Idempotency-Key", "a b")).Refused(400, "invalid_request_error")
		t.Post("/manage/v1/keys", JSONBody(fmt.Sprintf(`{"project":%q}`, project)), o, WithHeader("Content-Type", "text/plain")).Refused(415, "unsupported_media_type")
		var page managedPage[managed]
		t.Get("/manage/v1/keys?project="+project, o).Want(200).decode(&page)
		if len(page.Data) != 0 {
			t.Errorf("refused requests created the keys %v", page.Data)
		}
	}},
	{"idempotent creation", stated + `a second request with the same Idempotency-Key returns the key that the first one created`, func(t *T) {
		o, _ := newToken(t)
		other, _ := newToken(t)
		project := newProject(t, o)
		body := fmt.Sprintf(`{"project":%q,"name":"once","revoke_after":3600}`, project)
		once := WithHeader("Idempotency-Key", NewID())
		first := createKey(t, body, o, once)
		again := t.Post("/manage/v1/keys", JSONBody(body), o, once).Want(200).madeKey()
		if again.ID != first.ID || again.Key != first.Key || again.CreatedAt != first.CreatedAt {
			t.Errorf("the repeated request returned %+v, want %+v", again, first)
		}
		t.Post("/manage/v1/keys", JSONBody(strings.Replace(body, "3600", "60", 1)), o, once).Refused(400, "invalid_request_error")
		if different := createKey(t, body, other, once); different.ID == first.ID || different.Key == first.Key {
			t.Error("another token got the same key")
		}
		if different := createKey(t, body, o, WithHeader("Idempotency-Key", NewID())); different.ID == first.ID || different.Key == first.Key {
			t.Error("another Idempotency-Key got the same key")
		}
	}},
	{"keys that revoke themselves", stated + `a key with revoke_after revokes itself after that time (401 key_revoked); D18: its subscriptions end within 2 s`, func(t *T) {
		o, _ := newToken(t)
		project, id := newProject(t, o), NewID()
		owner := createKey(t, fmt.Sprintf(`{"project":%q}`, project), o)
		t.Post("/v1/streams", JSONBody(fmt.Sprintf(`{"name":"x","id":%q}`, id)), WithKey(owner.Key)).Want(201)
		defer t.Delete("/v1/streams/"+id, WithKey(owner.Key))
		short := createKey(t, fmt.Sprintf(`{"project":%q,"permissions":["read"],"streams":[%q],"revoke_after":5}`, project, id), o)
		created, err := time.Parse(time.RFC3339, short.CreatedAt)
		if err != nil || short.RevokeAt == nil || *short.RevokeAt != created.Add(5*time.Second).Format("2006-01-02T15:04:05.000Z") {
			t.Errorf("created at %s, revokes itself at %v", short.CreatedAt, short.RevokeAt)
		}
		sub := t.Subscribe(id, "cursor=0", WithKey(short.Key))
		Eventually(t, Patience, "the key revokes itself", func() bool {
			a := t.Get("/v1/streams/"+id, WithKey(short.Key))
			if a.Status == http.StatusOK {
				return false
			}
			a.Refused(401, "key_revoked")
			return true
		})
		sub.Closed(2*time.Second + slack)
		Eventually(t, Patience, "every node lists the key as revoked", func() bool { // not all at the same moment, because the clocks of nodes differ a little
			var page managedPage[managed]
			t.Get("/manage/v1/keys?project="+project, o).Want(200).decode(&page)
			return slices.ContainsFunc(page.Data, func(k managed) bool {
				return k.ID == short.ID && k.RevokedAt != nil && *k.RevokedAt == *short.RevokeAt
			})
		})
	}},
}
