// Package js holds the JavaScript client and serves it to pages. People who have npm take the package in this directory; a
// page that has nothing but the address of a server imports one file from it, which is the same modules put together.
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

// modules are the files of the client, each after those that it needs. The last says what is exported.
var modules = []string{"errors", "wait", "payload", "sse", "call", "publish", "publisher", "subscription", "client", "index"}

var (
	imported   = regexp.MustCompile(`(?m)^import \{.*\} from "\./\w+\.js";\n+`)
	exported   = regexp.MustCompile(`(?m)^export ((?:async )?(?:class|const|function))\b`)
	reexported = regexp.MustCompile(`(?m)^(export \{.*\}) from "\./\w+\.js";$`)
)

// Module is the client as one ES module. It needs no bundler: the modules import only each other, one line an import, and no
// two have a name in common at the top level, which a test sees to.
var Module = sync.OnceValue(func() []byte {
	var all bytes.Buffer
	for _, name := range modules {
		text, err := sources.ReadFile("src/" + name + ".js")
		if err != nil {
			panic(err) // it is in the binary, or the tests fail
		}
		text = imported.ReplaceAll(text, nil)
		text = exported.ReplaceAll(text, []byte("$1"))
		text = reexported.ReplaceAll(text, []byte("$1;"))
		all.Write(text)
		all.WriteByte('\n')
	}
	return bytes.TrimRight(all.Bytes(), "\n")
})

// Modules are the files that Module is made of, for pages of the server itself that need some of them alone.
func Modules() fs.FS {
	files, err := fs.Sub(sources, "src")
	if err != nil {
		panic(err) // it is in the binary, or the tests fail
	}
	return files
}

// Handler serves the client as one module, to pages of any origin: it is no secret.
func Handler() http.Handler {
	sum := sha256.Sum256(Module())
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Server", "svc")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
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
