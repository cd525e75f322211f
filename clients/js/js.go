// Package js embeds the JavaScript client and serves it to web pages. Programs with npm use the
// package in this directory. A page that knows only the address of a server imports a single file
// from it, which contains the same modules concatenated.
package js

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"regexp"
	"sync"
	"time"
)

//go:embed src/*.js
var sources embed.FS

// modules lists the files of the client. Each comes after the files it imports. The last one has
// the exports.
var modules = []string{"errors", "wait", "payload", "sse", "call", "publish", "publisher", "subscription", "client", "index"}

var (
	imported   = regexp.MustCompile(`(?m)^import \{.*\} from "\./\w+\.js";\n+`)
	exported   = regexp.MustCompile(`(?m)^export ((?:async )?(?:class|const|function))\b`)
	reexported = regexp.MustCompile(`(?m)^(export \{.*\}) from "\./\w+\.js";$`)
)

// Module returns the client as one ES module. Concatenation works without a bundler for two
// reasons, and TestModule checks both: the modules import only each other, with one import per
// line, and no two of them declare the same name at the top level. The caller must not change the
// result.
var Module = sync.OnceValue(func() []byte {
	var all bytes.Buffer
	for _, name := range modules {
		text, err := sources.ReadFile("src/" + name + ".js")
		if err != nil {
			panic(err) // cannot happen: the file is embedded, and TestModules compares the list with src
		}
		text = imported.ReplaceAll(text, nil)
		text = exported.ReplaceAll(text, []byte("$1"))
		text = reexported.ReplaceAll(text, []byte("$1;"))
		all.Write(text)
		all.WriteByte('\n')
	}
	return bytes.TrimRight(all.Bytes(), "\n")
})

// Modules returns the files of the client. Pages of the server itself, such as the dashboard,
// import single modules from it.
func Modules() fs.FS {
	files, err := fs.Sub(sources, "src")
	if err != nil {
		panic(err) // cannot happen: src is embedded
	}
	return files
}

// Handler serves the client as one module to pages from any origin, because it contains nothing
// secret.
func Handler() http.Handler {
	sum := sha256.Sum256(Module())
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Server", "svc")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this file supports only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Set("Cache-Control", "public, max-age=300")
		h.Set("Content-Type", "text/javascript; charset=utf-8")
		h.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(Module()))
	})
}
