package hub

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// badDocuments are values that are not valid for a stream document.
var badDocuments = map[string]string{
	"not JSON":           `{"project":`,
	"empty":              `{}`,
	"no project":         `{"name":"n","retention_seconds":60,"max_bytes":1048576,"mode":"json"}`,
	"no mode":            `{"project":"p","name":"n","retention_seconds":60,"max_bytes":1048576}`,
	"unknown mode":       `{"project":"p","name":"n","retention_seconds":60,"max_bytes":1048576,"mode":"xml"}`,
	"no size":            `{"project":"p","name":"n","retention_seconds":60,"mode":"json"}`,
	"no retention":       `{"project":"p","name":"n","max_bytes":1048576,"mode":"json"}`,
	"negative retention": `{"project":"p","name":"n","retention_seconds":-1,"max_bytes":1048576,"mode":"raw"}`,
}

const goodDocument = `{"project":"p","name":"n","created_at":5,"retention_seconds":60,"max_bytes":1048576,"mode":"json"}`

// All readers of stream documents accept the same documents: a document that check and repair
// refuse is not served as a stream, and a document that is served passes check and repair.
func TestReadersOfAStreamDocumentAgree(t *testing.T) {
	const id = weir.StreamID("0123456789ABCXYZabcxyz")
	readers := map[string]func(engine.Document) error{
		"check": func(d engine.Document) error { return CheckStream(d, nil, func(func(*engine.Header) bool) {}) },
		"repair": func(d engine.Document) error {
			_, _, err := MendStream(d, 0, nil, func(func(*engine.Header) bool) {}, 0, 5)
			return err
		},
		"start": func(d engine.Document) error {
			e := memory.New()
			defer e.Close()
			if _, err := e.Create(ctx, d.Key, d.Value); err != nil {
				t.Fatal(err)
			}
			h, err := Open(ctx, e, Options{Frame: testFrame})
			if err == nil {
				h.Close()
			}
			return err
		},
		"change by another node": func(d engine.Document) error {
			e := memory.New()
			defer e.Close()
			h := open(t, e, Options{})
			defer h.Close()
			if r, ok := parse(engine.Change{Document: d}); ok {
				h.documentChanged(&r)
			}
			_, err := h.Stream(id)
			return err
		},
	}
	for reader, read := range readers {
		if err := read(engine.Document{Key: documentKey(id), Value: []byte(goodDocument), Created: 1}); err != nil {
			t.Errorf("%s refuses a good document: %v", reader, err)
		}
		for name, value := range badDocuments {
			if read(engine.Document{Key: documentKey(id), Value: []byte(value), Created: 1}) == nil {
				t.Errorf("%s: %s accepts %s", name, reader, value)
			}
		}
	}
}

// readDocument returns the spec and the creation time that Create wrote.
func TestDocumentRoundTrip(t *testing.T) {
	e := memory.New()
	defer e.Close()
	h := open(t, e, Options{})
	defer h.Close()
	s := made(t, h, nil)
	doc, err := e.Get(ctx, documentKey(s.ID))
	if err != nil {
		t.Fatal(err)
	}
	spec, created, err := readDocument(doc)
	if err != nil || spec != s.Spec() || created != s.CreatedAt {
		t.Errorf("read %+v, created %s, %v; want %+v, created %s", spec, created, err, s.Spec(), s.CreatedAt)
	}
}

// Create refuses a spec whose document the next start would refuse.
func TestCreateRefusesAnIncompleteSpec(t *testing.T) {
	e := memory.New()
	defer e.Close()
	h := open(t, e, Options{})
	defer h.Close()
	for name, spec := range map[string]Spec{
		"no project":   {RetentionSeconds: 60, MaxBytes: 1, Mode: weir.Raw},
		"no mode":      {Project: "p", RetentionSeconds: 60, MaxBytes: 1},
		"no size":      {Project: "p", RetentionSeconds: 60, Mode: weir.Raw},
		"no retention": {Project: "p", MaxBytes: 1, Mode: weir.Raw},
	} {
		if _, err := h.Create(ctx, spec); err == nil {
			t.Errorf("%s: the stream was created, want a refusal", name)
		}
	}
	if docs, err := e.List(ctx, "", "", 10); err != nil || len(docs) > 0 {
		t.Errorf("stored %v, %v; want nothing", docs, err)
	}
}

func TestStreamOf(t *testing.T) {
	if id, ok := StreamOf(documentKey("a")); !ok || id != "a" {
		t.Errorf("got %q, %t; want a, true", id, ok)
	}
	for _, key := range []string{"", "stream", "streams/a", "key/a", "project/stream/a"} {
		if id, ok := StreamOf(key); ok {
			t.Errorf("%q was taken for the document of stream %q", key, id)
		}
	}
	if kind, _, _ := strings.Cut(documentKey("a"), "/"); kind != DocumentKind {
		t.Errorf("the kind of a stream document is %q, want %q", kind, DocumentKind)
	}
}

// FuzzScanDocument compares scanDocument with encoding/json, which must agree on every document that
// scanDocument reads.
func FuzzScanDocument(f *testing.F) {
	for _, name := range []string{"n", "", "~", `quote " in it`, `back\slash`, "é", "\u2028", "<html>", "\x7f", "tab\t"} {
		value, err := writeDocument(&Spec{ID: "x", Project: "p", Name: name, RetentionSeconds: 60, MaxBytes: 1 << 40, Mode: weir.Raw}, 5)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
		f.Add(append(value, ' '))
		f.Add(bytes.Replace(value, []byte(`"}`), []byte(`","attributes":"{\"a\":\"\\\\\"}"}`), 1))
		f.Add(bytes.Replace(value, []byte(`"}`), []byte(`","attributes":"\u0041\n"}`), 1))
		f.Add(bytes.Replace(value, []byte(`"}`), []byte(`","attributes":"\"}`), 1))
		f.Add(bytes.Replace(value, []byte("60"), []byte("060"), 1))
		f.Add(bytes.Replace(value, []byte("60"), []byte("9999999999999999999"), 1))
	}
	for _, value := range badDocuments {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		got, ok := scanDocument(value)
		if !ok {
			return
		}
		var want document
		if err := json.Unmarshal(value, &want); err != nil || got != want {
			t.Errorf("read %+v, want %+v (%v)", got, want, err)
		}
	})
}

// A document has the same content as one that encoding/json writes.
func TestEncodeDocument(t *testing.T) {
	texts := []string{"n", "", `quote " and back\\slash`, "é\u2028<html>&", "\x00\x7f\t\n", "not UTF-8: \xff"}
	for _, text := range texts {
		for _, n := range []int64{0, 1, 1 << 60} {
			v := document{Project: "p", Name: text, CreatedAt: n, RetentionSeconds: 60, MaxBytes: 1 << 40, Mode: weir.Raw, TTLSeconds: n, ExpiresAt: n, UsedAt: n, Attributes: text}
			standard, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var got, want document
			if err := json.Unmarshal(v.encode(), &got); err != nil {
				t.Fatalf("%s: %v", v.encode(), err)
			}
			if err := json.Unmarshal(standard, &want); err != nil || got != want {
				t.Errorf("wrote %s, want the content of %s (%v)", v.encode(), standard, err)
			}
		}
	}
}

// scanDocument reads the documents of nearly all streams.
func TestScanDocument(t *testing.T) {
	for _, attributes := range []string{"", `{"path":"chats/42","type":"application/json"}`, `"back\slash"`} {
		spec := Spec{ID: "x", Project: "p", Name: "A name, with commas.", RetentionSeconds: 60, MaxBytes: 1 << 40, Mode: weir.JSON, Attributes: attributes}
		value, err := writeDocument(&spec, 1_763_284_337_000)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := scanDocument(value); !ok || v.Attributes != attributes || v.Name != spec.Name || v.Mode != spec.Mode || v.CreatedAt != 1_763_284_337_000 {
			t.Errorf("read %+v, %v", v, ok)
		}
	}
}
