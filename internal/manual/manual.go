// Package manual serves the manual of the service under /docs, and the OpenAPI description of the
// HTTP API as /openapi.json. It generates the pages from three sources: the Markdown documents of
// weir/docs, the OpenAPI description, and the tables of errors and commands that the caller passes
// in. So each fact is written down in one place only. Pages load nothing from other sites. Their
// one script adds the search and the copy buttons; without it, everything can still be read.
package manual

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Options are the parts of the manual that do not come from Markdown or the OpenAPI description.
type Options struct {
	Faults    []Fault   // for /docs/errors
	Commands  []Command // for /docs/cli
	URL       string    // address of this server in blocks of code; empty for the default of weir serve
	HTTPS     string    // the same for HTTPS
	Dashboard bool      // this address also serves the dashboard, so pages link to /dashboard
}

// Fault describes an error code of the API.
type Fault struct {
	Code       string
	Status     int
	Type       string
	RetryAfter bool // the response has a retry-after header
	Means      string
	Todo       string
}

// Command describes a command of the program. All texts are those of its --help.
type Command struct {
	Use     string // what the user types, for example weir key create
	Short   string
	Long    string
	Example string
	Flags   []Flag
}

// Flag describes a flag of a command.
type Flag struct {
	Name    string
	Value   string // placeholder of its value; empty for a boolean flag
	Default string
	Usage   string
}

// file is a response that stays the same for as long as the server is running.
type file struct {
	contentType string
	body        []byte
	zipped      []byte // body compressed with gzip; nil if compression does not help
	etag        string
	public      bool // pages from other origins may read it (CORS)
}

// newFile compresses the body once, so that no request has to. It is for text. Images are not
// compressed (see addPictures).
func newFile(contentType string, body []byte) *file {
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
	w.Write(body)
	w.Close()
	return &file{contentType: contentType, body: body, zipped: z.Bytes(), etag: etag(body)}
}

// etag returns a hash of the body. It changes whenever the body changes.
func etag(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// Handler serves the manual and passes all other requests to the next handler. It is safe for
// concurrent use.
type Handler struct {
	next        http.Handler
	description func() (*file, error)            // /openapi.json
	files       func() (map[string]*file, error) // all others
}

// New returns a handler that serves the manual and passes other requests to next. It builds the
// pages at the first request for one of them, so a server whose manual is never read does not spend
// time or memory on it. Programs read /openapi.json, so it is served without building the pages.
func New(o Options, next http.Handler) *Handler {
	description := sync.OnceValues(readDescription)
	return &Handler{next,
		sync.OnceValues(func() (*file, error) {
			d, err := description()
			if err != nil {
				return nil, err
			}
			f := newFile("application/json", d.json)
			f.public = true
			return f, nil
		}),
		sync.OnceValues(func() (map[string]*file, error) {
			d, err := description()
			if err != nil {
				return nil, err
			}
			return build(o, d)
		})}
}

//go:embed style.css
var style []byte

//go:embed manual.js
var script []byte

// policy is the Content-Security-Policy of every page. It allows style sheets, images, the script and
// the search index from this server, images in data URLs, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// moved has the paths that redirect. Links to /docs/command-line may be in bookmarks.
var moved = map[string]string{"/": "/docs", "/docs/": "/docs", "/docs/command-line": commandLine}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path != "/" && path != "/docs" && path != "/openapi.json" && !strings.HasPrefix(path, "/docs/") {
		h.next.ServeHTTP(w, r)
		return
	}
	header := w.Header()
	header["Server"] = []string{"svc"}
	header["X-Content-Type-Options"] = []string{"nosniff"}
	header["Referrer-Policy"] = []string{"no-referrer"}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header["Allow"] = []string{"GET, HEAD"}
		http.Error(w, "this page supports only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if to := moved[path]; to != "" {
		header["Location"] = []string{to}
		w.WriteHeader(http.StatusFound)
		return
	}
	f, status, err := h.find(path)
	if err != nil { // cannot happen: all input is embedded in the binary, and TestPages builds every page
		http.Error(w, "build the manual: "+err.Error(), http.StatusInternalServerError)
		return
	}
	f.serve(w, r, status)
}

// find returns the response for a path, and its status.
func (h *Handler) find(path string) (*file, int, error) {
	if path == "/openapi.json" {
		f, err := h.description()
		return f, http.StatusOK, err
	}
	files, err := h.files()
	if err != nil {
		return nil, 0, err
	}
	if f := files[path]; f != nil {
		return f, http.StatusOK, nil
	}
	return files[missing], http.StatusNotFound, nil
}

// serve writes the file, compressed if the client accepts gzip. Only responses with status 200 can
// be cached or replaced by a 304. The page for unknown addresses is never cached, because any
// number of addresses lead to it.
func (f *file) serve(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h["Content-Type"] = []string{f.contentType}
	h["Content-Security-Policy"] = []string{policy}
	h["Vary"] = []string{"Accept-Encoding"}
	if f.public {
		h["Access-Control-Allow-Origin"] = []string{"*"}
	}
	body, tag := f.body, `"`+f.etag+`"`
	if f.zipped != nil && zips(r.Header["Accept-Encoding"]) {
		// An ETag stands for exact bytes, so the compressed body needs an ETag of its own.
		body, tag = f.zipped, `"`+f.etag+`z"`
		h["Content-Encoding"] = []string{"gzip"}
	}
	if status == http.StatusOK {
		h["Etag"] = []string{tag}
		h["Cache-Control"] = []string{"public, no-cache"} // browsers revalidate every time, and mostly get a 304
		// An address that contains the hash of the body belongs to exactly these bytes (see
		// readPicture).
		if r.URL.RawQuery == "v="+f.etag {
			h["Cache-Control"] = []string{"public, max-age=31536000, immutable"}
		}
		if slices.Contains(r.Header["If-None-Match"], tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// zips reports whether the Accept-Encoding headers allow gzip.
func zips(accept []string) bool {
	for coding := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, quality, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(quality, "q="), 64)
			return quality == "" || err == nil && q > 0
		}
	}
	return false
}
