// Package manual is the manual of the service as pages of the service itself: /docs, made from Markdown, from the
// description of the HTTP interface and from the tables that its caller hands in, so that nothing is written twice. It also
// serves that description, as /openapi.json. Pages load nothing from anywhere else and run no script.
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

// Options are what the manual tells beside its Markdown.
type Options struct {
	Faults   []Fault   // for /docs/errors
	Commands []Command // for /docs/command-line
}

// Fault is an error code of the interface.
type Fault struct {
	Code       string
	Status     int
	Type       string
	RetryAfter bool // it comes with retry-after
	Means      string
	Todo       string
}

// Command is a command of the program, as its help has it.
type Command struct {
	Use     string // as typed: weir key create
	Short   string
	Long    string
	Example string
	Flags   []Flag
}

// Flag is a flag of a command.
type Flag struct {
	Name    string
	Value   string // what it takes; empty for a switch
	Default string
	Usage   string
}

// file is something that never changes while the server runs.
type file struct {
	contentType string
	body        []byte
	zipped      []byte // nil: it would not get smaller
	etag        string
	public      bool // pages of other origins may read it
}

func newFile(contentType string, body []byte) *file {
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
	w.Write(body)
	w.Close()
	return &file{contentType: contentType, body: body, zipped: z.Bytes(), etag: etag(body)}
}

func etag(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// Handler answers for the manual, and leaves everything that is no part of it to another handler.
type Handler struct {
	next  http.Handler
	files func() (map[string]*file, error)
}

// New makes the handler. Pages are made when the first one is asked for: a server that nobody reads the manual of does not
// pay for it.
func New(o Options, next http.Handler) *Handler {
	return &Handler{next, sync.OnceValues(func() (map[string]*file, error) { return build(o) })}
}

//go:embed style.css
var style []byte

// policy lets a page have its style and nothing else.
const policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request.
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
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
		return
	}
	if path == "/" || path == "/docs/" {
		header["Location"] = []string{"/docs"}
		w.WriteHeader(http.StatusFound)
		return
	}
	files, err := h.files()
	if err != nil { // a test keeps this from happening
		http.Error(w, "the manual cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if f := files[path]; f != nil {
		f.serve(w, r, http.StatusOK)
		return
	}
	files[missing].serve(w, r, http.StatusNotFound)
}

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
		body, tag = f.zipped, `"`+f.etag+`z"`
		h["Content-Encoding"] = []string{"gzip"}
	}
	if status == http.StatusOK {
		h["Etag"] = []string{tag}
		h["Cache-Control"] = []string{"public, no-cache"} // asked for every time, sent when it changed
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

// zips tells whether the client takes gzip.
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
