package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// testHandler is a handler on an engine whose documents can be made to fail.
type testHandler struct {
	*Handler
	docs *breakable
	log  *bytes.Buffer
}

// breakable is a document store that fails once its field err is set.
type breakable struct {
	engine.Documents
	err error
}

func (b *breakable) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if b.err != nil {
		return engine.Document{}, b.err
	}
	return b.Documents.Create(ctx, key, value)
}

func (b *breakable) CatchUp(context.Context) error { return b.err }

func newTestHandler(t *testing.T) *testHandler {
	t.Helper()
	e := memory.New()
	t.Cleanup(func() { e.Close() })
	docs := &breakable{Documents: e}
	a, err := access.Open(t.Context(), docs, access.Options{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	log := new(bytes.Buffer)
	return &testHandler{New(a, slog.New(slog.NewTextHandler(log, nil))), docs, log}
}

// ask sends a request, checks status and content type, and decodes the JSON response.
func (h *testHandler) ask(t *testing.T, method, path, body string, status int, answer any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if w.Code != status {
		t.Errorf("%s %s: status %d, want %d: %s", method, path, w.Code, status, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: content type %q", method, path, got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
		t.Errorf("%s %s: %v in %q", method, path, err, w.Body)
	}
}

// Every refusal is an Error, whichever check fails, and its message never repeats a key.
func TestRefusals(t *testing.T) {
	h := newTestHandler(t)
	var p weir.Project
	h.ask(t, "POST", "/projects", `{"name":"shop"}`, 200, &p)
	key := "svc_live_00112233445566778899aabbccddeeff"
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		code                     weir.Code
		message                  string
	}{
		{"no body", "POST", "/projects", "", 400, weir.InvalidRequest, "read the request body: "},
		{"body is not JSON", "POST", "/projects", "shop", 400, weir.InvalidRequest, "read the request body: "},
		{"wrong type of a member", "POST", "/projects", `{"name":7}`, 400, weir.InvalidRequest, "read the request body: "},
		{"unknown member", "POST", "/projects", `{"name":"a","colour":"red"}`, 400, weir.InvalidRequest, `"colour"`},
		{"unknown member of a key", "POST", "/keys", `{"project":"shop","kind":"live","expires":"never"}`, 400, weir.InvalidRequest, `"expires"`},
		{"two JSON values", "POST", "/projects", `{"name":"a"}{"name":"b"}`, 400, weir.InvalidRequest, "more than one"},
		{"body too long", "POST", "/projects", `{"name":"` + strings.Repeat("a", 65<<10) + `"}`, 400, weir.InvalidRequest, "too large"},
		{"name in use", "POST", "/projects", `{"name":"shop"}`, 400, weir.InvalidRequest, `"shop" already exists`},
		{"unknown project", "POST", "/keys", `{"project":"none","kind":"live"}`, 400, weir.InvalidRequest, `no project named "none"`},
		{"missing kind", "POST", "/keys", `{"project":"shop"}`, 400, weir.InvalidRequest, "live or test"},
		{"unknown permission", "POST", "/keys", `{"project":"shop","kind":"live","permissions":["write"]}`, 400, weir.InvalidRequest, `"write"`},
		{"keys of an unknown project", "GET", "/keys?project=none", "", 400, weir.InvalidRequest, `no project named "none"`},
		{"key in place of a project", "POST", "/keys", `{"project":"` + key + `","kind":"live"}`, 400, weir.InvalidRequest, `"svc_live_001...eeff"`},
		{"list with a key in place of a project", "GET", "/keys?project=" + key, "", 400, weir.InvalidRequest, `"svc_live_001...eeff"`},
		{"unknown key id", "POST", "/keys/none/revoke", "", 404, weir.NotFound, `"none"`},
		{"key in place of its id", "POST", "/keys/" + key + "/revoke", "", 404, weir.NotFound, `"svc_live_001...eeff"`},
		{"demo key", "POST", "/keys/demo/revoke", "", 400, weir.InvalidRequest, "built in"},
		{"unknown path", "GET", "/streams", "", 404, weir.NotFound, "unknown request"},
		{"unknown method", "DELETE", "/projects", "", 404, weir.NotFound, "unknown request"},
		{"path that is not clean", "POST", "/keys//revoke", "", 404, weir.NotFound, ""},
		{"path with a key", "GET", "/" + key, "", 404, weir.NotFound, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e Error
			h.ask(t, c.method, c.path, c.body, c.status, &e)
			if e.Code != c.code || !strings.Contains(e.Message, c.message) || e.Message == "" {
				t.Errorf("got %q, want %s with %q", e, c.code, c.message)
			}
			if strings.Contains(e.Message, key) {
				t.Errorf("the message repeats a key: %s", e.Message)
			}
		})
	}
	if h.log.Len() > 0 {
		t.Errorf("a refusal that was returned to the operator was also logged: %s", h.log)
	}
}

// Faults of the server are logged and not returned. The log never contains a key.
func TestFaults(t *testing.T) {
	h := newTestHandler(t)
	h.docs.err = errors.New("the disk is on fire")
	key := "svc_live_00112233445566778899aabbccddeeff"
	var e Error
	h.ask(t, "POST", "/keys/"+key+"/revoke", "", 500, &e)
	if e.Code != weir.InternalError || strings.Contains(e.Message, "fire") {
		t.Errorf("got %q", e)
	}
	if !strings.Contains(h.log.String(), "on fire") {
		t.Errorf("the fault is missing from the log: %s", h.log)
	}
	if strings.Contains(h.log.String(), key) {
		t.Errorf("the log holds a key: %s", h.log)
	}

	h.docs.err = engine.ErrReadOnly
	h.ask(t, "POST", "/projects", `{"name":"shop"}`, 503, &e)
	if e.Code != weir.StorageUnavailable {
		t.Errorf("got %q", e)
	}
}

// Only the response to the request that creates a key contains the key.
func TestKeyIsShownOnce(t *testing.T) {
	h := newTestHandler(t)
	var p weir.Project
	h.ask(t, "POST", "/projects", `{"name":"shop"}`, 200, &p)
	var made MadeKey
	h.ask(t, "POST", "/keys", `{"project":"shop","kind":"test","name":"n"}`, 200, &made)
	if !access.IsKey(made.Secret) || made.Project != p.ID || made.Kind != access.Test || made.Name != "n" {
		t.Errorf("the new key is %+v", made)
	}
	var list []access.Key
	var plain json.RawMessage
	h.ask(t, "GET", "/keys?project=shop", "", 200, &list)
	h.ask(t, "GET", "/keys", "", 200, &plain)
	if len(list) != 1 || list[0].ID != made.ID || bytes.Contains(plain, []byte(made.Secret)) {
		t.Errorf("the list lacks the key, or contains its secret: %s", plain)
	}
	var revoked access.Key
	h.ask(t, "POST", "/keys/"+made.ID+"/revoke", "", 200, &revoked)
	if revoked.RevokedAt == nil {
		t.Errorf("the key is not revoked: %+v", revoked)
	}
	if h.log.Len() > 0 {
		t.Errorf("the log is not empty: %s", h.log)
	}
}

// Empty lists are [] and not null.
func TestEmptyLists(t *testing.T) {
	h := newTestHandler(t)
	for _, path := range []string{"/projects", "/keys", "/keys?project=demo"} {
		var plain json.RawMessage
		h.ask(t, "GET", path, "", 200, &plain)
		if string(plain) != "[]" {
			t.Errorf("%s: %s", path, plain)
		}
	}
}
