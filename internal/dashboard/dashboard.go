// Package dashboard is the web pages for the operator: projects and keys, streams with their live tail, what the service does
// and did, and who changed what. Pages are made on the server; a few small scripts beside them refresh what moves. It has its
// own way in, a password and a session: no page accepts a key, and nothing under /v1 accepts the session.
package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/engine"
	"weir/internal/hub"
)

// Options are what the dashboard needs.
type Options struct {
	Documents engine.Documents // where the account, the audit log and figures are kept
	Hub       *hub.Hub
	Access    *access.Access
	API       *api.Handler

	Client fs.FS // the modules of the JavaScript client, for the live tail

	Node    string // whose figures are kept, where several nodes share the documents; empty: there is one
	BaseURL string // what lines to copy begin with; no slash at the end
	Curl    string // what curl needs beside that, such as a certificate to trust; begins with a space, or is empty
	Version string
	Commit  string
	Started time.Time // zero: now

	Store   func() Store                    // nil: nothing is known of it
	Cluster func() string                   // how the cluster stands, in words; nil or empty: there is none
	Health  func() (status string, ok bool) // nil: all is well
	Writes  func() bool                     // whether the store takes writes; nil: always
	Logger  *slog.Logger
	Now     func() time.Time // nil: time.Now
}

// Dashboard serves the pages. Close it.
type Dashboard struct {
	Options
	account  account
	sessions sessions
	throttle throttle
	audit    audit
	refusals refusals
	figures  figures
	hashing  chan struct{}
	origin   *http.CrossOriginProtection
	base     url.URL // of BaseURL
	mux      *http.ServeMux
	assets   map[string]asset

	// Of the goroutine that samples, and of Close after it.
	stored     map[int64]engine.Revision // of the documents of hours
	written    map[int64]string
	complained bool

	closing chan struct{}
	work    sync.WaitGroup
}

func (o *Options) defaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Started.IsZero() {
		o.Started = o.Now()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Health == nil {
		o.Health = func() (string, bool) { return "ok", true }
	}
	if o.Writes == nil {
		o.Writes = func() bool { return true }
	}
	if o.Cluster == nil {
		o.Cluster = func() string { return "" }
	}
	if o.Store == nil {
		o.Store = func() Store { return Store{} }
	}
}

// Open reads what is stored and begins to sample.
func Open(ctx context.Context, o Options) (*Dashboard, error) {
	o.defaults()
	d := &Dashboard{
		Options: o, hashing: make(chan struct{}, hashers), closing: make(chan struct{}), origin: http.NewCrossOriginProtection(),
		stored: map[int64]engine.Revision{}, written: map[int64]string{},
	}
	d.assets = maps.Clone(assets)
	if err := cmp.Or(d.trustBase(), readAssets(d.assets, "client/", o.Client)); err != nil {
		return nil, fmt.Errorf("open the dashboard: %w", err)
	}
	d.sessions = sessions{now: o.Now, all: map[digest]*session{}}
	d.throttle = newThrottle(o.Now)
	d.refusals.dirty = map[*refusal]bool{}
	d.figures.fine = ring{every: fineEvery, kept: fineKept}
	d.figures.coarse = ring{every: coarseEvery, kept: coarseKept}
	d.figures.usage.hours = map[int64]map[string]uint64{}
	d.share()
	for _, load := range []func(context.Context) error{d.loadAccount, d.loadAudit, d.loadRefusals, d.loadFigures} {
		if err := load(ctx); err != nil {
			return nil, fmt.Errorf("open the dashboard: %w", err)
		}
	}
	d.routes()
	d.tick(ctx) // what is counted from here on
	d.work.Go(d.run)
	return d, nil
}

// trustBase takes requests for those of the dashboard's own pages that come from where people are told to find it: behind a
// proxy the server itself may have another name. Loopback, which is what a server without a base URL goes by, is not trusted
// like that: on the browser's own machine it may be somebody else's.
func (d *Dashboard) trustBase() error {
	base, err := url.Parse(d.BaseURL)
	if err != nil || base.Host == "" {
		return err
	}
	d.base = *base
	if ip, err := netip.ParseAddr(base.Hostname()); err == nil && ip.IsLoopback() || base.Hostname() == "localhost" {
		return nil
	}
	host := strings.ToLower(base.Host) // as browsers write it
	if base.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return d.origin.AddTrustedOrigin(base.Scheme + "://" + host)
}

// Close stops sampling, and stores what is left.
func (d *Dashboard) Close(ctx context.Context) {
	close(d.closing)
	d.work.Wait()
	d.sessions.endAll(nil)
	c := d.read()
	d.figures.mu.Lock()
	if c.taken.Sub(d.figures.coarse.last.taken) >= time.Second { // the minute that is not over
		d.figures.coarse.add(c.since(&d.figures.coarse.last))
	}
	d.figures.usage.take(c.taken, d.Access.Taken())
	d.figures.mu.Unlock()
	d.keepFigures(ctx)
	d.keepRefusals(ctx)
}

// Serves tells whether a path is one of the dashboard's.
func Serves(path string) bool {
	return path == "/" || path == "/dashboard" || strings.HasPrefix(path, "/dashboard/")
}

// policy lets a page load what this server has, and nothing else: no script or style in a page itself, no other site.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer browsers call the origin of our own forms null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Server", "svc")
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			d.Logger.Error("panic", "page", r.Pattern, "panic", p, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler)
		}
	}()
	if err := d.origin.Check(r); err != nil {
		d.refuse(w, r, nil, weir.Errorf(weir.ProjectForbidden, "this request came from another site, and was not carried out"))
		return
	}
	d.mux.ServeHTTP(w, r)
}

// routes says what answers where.
func (d *Dashboard) routes() {
	d.mux = http.NewServeMux()
	d.mux.Handle("GET /{$}", http.RedirectHandler("/dashboard", http.StatusFound))
	d.mux.HandleFunc("GET /dashboard/assets/{name...}", d.asset)
	open := func(pattern string, f func(*visit) error) { d.mux.HandleFunc(pattern, d.visit(f, false)) }
	open("GET /dashboard/sign-in", (*visit).signInPage)
	open("POST /dashboard/sign-in", (*visit).signIn)
	for pattern, f := range map[string]func(*visit) error{
		"GET /dashboard":                          (*visit).overview,
		"GET /dashboard/figures":                  (*visit).overviewFigures,
		"GET /dashboard/streams":                  (*visit).streams,
		"POST /dashboard/streams":                 (*visit).createStream,
		"GET /dashboard/streams/new":              (*visit).newStream,
		"GET /dashboard/streams/pick":             (*visit).pickStreams,
		"GET /dashboard/streams/{id}":             (*visit).stream,
		"GET /dashboard/streams/{id}/figures":     (*visit).streamFigures,
		"GET /dashboard/streams/{id}/tail":        (*visit).tail,
		"GET /dashboard/streams/{id}/tail/cursor": (*visit).tailCursor,
		"POST /dashboard/streams/{id}/publish":    (*visit).publish,
		"GET /dashboard/streams/{id}/delete":      (*visit).confirmDelete,
		"POST /dashboard/streams/{id}/delete":     (*visit).deleteStream,
		"GET /dashboard/projects":                 (*visit).projects,
		"POST /dashboard/projects":                (*visit).createProject,
		"POST /dashboard/projects/{id}":           (*visit).renameProject,
		"GET /dashboard/keys":                     (*visit).keys,
		"POST /dashboard/keys":                    (*visit).createKey,
		"GET /dashboard/keys/new":                 (*visit).newKey,
		"GET /dashboard/keys/{id}":                (*visit).key,
		"POST /dashboard/keys/{id}/revoke":        (*visit).revokeKey,
		"GET /dashboard/keys/{id}/rotate":         (*visit).rotation,
		"POST /dashboard/keys/{id}/rotate":        (*visit).rotateKey,
		"GET /dashboard/requests":                 (*visit).requests,
		"GET /dashboard/audit":                    (*visit).auditPage,
		"GET /dashboard/account":                  (*visit).accountPage,
		"POST /dashboard/account/password":        (*visit).changePassword,
		"POST /dashboard/account/sessions":        (*visit).signOutEverywhere,
		"POST /dashboard/sign-out":                (*visit).signOut,
		"/dashboard/":                             (*visit).none,
	} {
		d.mux.HandleFunc(pattern, d.visit(f, true))
	}
}
