// Package js embeds the JavaScript client and serves it to web pages. Programs with npm use the
// package in this directory. A page that knows only the address of a server imports a single file
// from it, which contains the same modules, bundled and minified by tools/bundle.
package js

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist/client.js dist/client.js.map
var files embed.FS

// Handler serves the client as one module, /client.js, and its source map, /client.js.map, to pages
// from any origin, because neither contains anything secret. Other paths are not found.
func Handler() http.Handler {
	served := map[string]*file{
		"/client.js":     load("dist/client.js", "text/javascript; charset=utf-8"),
		"/client.js.map": load("dist/client.js.map", "application/json"),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := served[r.URL.Path]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Server", "svc")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this file supports only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		f.serve(w, r)
	})
}

// file is a file and its compressed variant. Each has a tag of its own, because caches must not
// mistake one for the other. The first request for the compressed variant compresses the file, so
// that a server does not spend the time when it starts.
type file struct {
	contentType string
	plain       []byte
	compressed  func() []byte
	tag         string // without quotes
}

func load(name, contentType string) *file {
	plain, err := files.ReadFile(name)
	if err != nil {
		panic(err) // cannot happen: the file is embedded
	}
	sum := sha256.Sum256(plain)
	return &file{contentType, plain, sync.OnceValue(func() []byte { return compress(plain) }), base64.RawURLEncoding.EncodeToString(sum[:12])}
}

func compress(plain []byte) []byte {
	var compressed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression) // fails only for an unknown level
	z.Write(plain)                                                 // a buffer does not fail
	z.Close()
	return compressed.Bytes()
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, `"`+f.tag+`"`
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		body, tag = f.compressed(), `"`+f.tag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if known := r.Header.Get("If-None-Match"); known == "*" || strings.Contains(known, tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		w.Write(body)
	}
}

// acceptsGzip reports whether a client accepts gzip, according to its Accept-Encoding fields. A
// client that sends only "*" gets the plain file, which every client can read.
func acceptsGzip(fields []string) bool {
	for _, field := range fields {
		for coding := range strings.SplitSeq(field, ",") {
			name, weight, weighted := strings.Cut(coding, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			_, value, _ := strings.Cut(weight, "=")
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}
