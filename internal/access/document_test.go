package access

import (
	"context"
	"strings"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// All readers of project and key documents agree on which documents are valid. A server must not
// start with a document that a check reports as invalid.
func TestReadersOfADocumentAgree(t *testing.T) {
	ctx := context.Background()
	project := projectDocument("n")
	key := digestOf(strings.Replace(DemoKey, "0", "f", 1)).document(Live)
	open := func(d engine.Document) error {
		e := memory.New()
		defer e.Close()
		if _, err := e.Create(ctx, d.Key, d.Value); err != nil {
			t.Fatal(err)
		}
		_, err := Open(ctx, e, Options{Limits: DefaultLimits})
		return err
	}
	suspend := func(d engine.Document) error {
		_, _, err := Suspend(d, 1)
		return err
	}
	for _, c := range []struct {
		name, key, value string
		good             bool
	}{
		{"project", project, `{"id":"p","name":"n","created_at":"2026-11-15T00:00:00.000Z"}`, true},
		{"project that is not JSON", project, `{"id":`, false},
		{"empty project", project, `{}`, false},
		{"project without a name", project, `{"id":"p"}`, false},
		{"project without an id", project, `{"name":"n"}`, false},
		{"key", key, `{"id":"k","project":"p","kind":"live"}`, true},
		{"key that is not JSON", key, `{"id":`, false},
		{"empty key", key, `{}`, false},
		{"key without a project", key, `{"id":"k"}`, false},
		{"key without an id", key, `{"project":"p"}`, false},
		{"key document whose name has no digest", keyPrefix + "k", `{"id":"k","project":"p","kind":"live"}`, false},
	} {
		readers := map[string]func(engine.Document) error{"check": CheckDocument, "start": open}
		if IsKeyDocument(c.key) {
			readers["repair"] = suspend
		}
		for reader, read := range readers {
			if err := read(engine.Document{Key: c.key, Value: []byte(c.value)}); (err == nil) != c.good {
				t.Errorf("%s: the %s returned %v, want success: %t", c.name, reader, err, c.good)
			}
		}
	}
}

func TestKindsOfDocuments(t *testing.T) {
	for _, c := range []struct {
		key          string
		project, api bool
	}{
		{projectDocument("n"), true, false},
		{digestOf(DemoKey).document(Live), false, true},
		{"", false, false},
		{"project", false, false},
		{"key", false, false},
		{"projects/a", false, false},
		{"keys/a", false, false},
		{"stream/key/a", false, false},
	} {
		if IsProjectDocument(c.key) != c.project || IsKeyDocument(c.key) != c.api {
			t.Errorf("%q: project %t, key %t; want %t, %t", c.key, IsProjectDocument(c.key), IsKeyDocument(c.key), c.project, c.api)
		}
		kind, _, _ := strings.Cut(c.key, "/")
		if c.project && kind != ProjectKind || c.api && kind != KeyKind {
			t.Errorf("the kind of %q is %q", c.key, kind)
		}
	}
}
