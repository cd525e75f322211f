// Package dashboard serves the operator's web pages: the overview with its plots, streams with
// their events, projects, keys, request lookup and the audit log. The server renders the pages, and a
// few small scripts keep their figures up to date.
//
// The dashboard has its own authentication, a password and a session. No page accepts an API key,
// and nothing under /v1 accepts a session.
package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Options configure a dashboard. Documents, Hub, Access and API are required.
type Options struct {
	Documents engine.Documents // holds the account, the sessions, the audit log and the figures
	Hub       *hub.Hub
	Access    *access.Access
	API       *api.Handler

	At      string // URL of the dashboard, if it has its own listener; empty if it is served at BaseURL
	Node    string // name of this node if several nodes share Documents; empty for a single server
	BaseURL string // public URL of the server, for commands to copy; no trailing slash
	Curl    string // extra curl flags for the commands to copy, such as a CA file; empty or starts with a space
	Version string
	Commit  string
	Started time.Time // zero means now

	Store    func() Store                    // state of the store; nil if unknown
	Troubles func() []Trouble                // what is wrong with the store and the cluster, worst first; nil means no troubles
	Cluster  func() string                   // sentences about the shards of the cluster; nil or empty without a cluster
	Nodes    func() Nodes                    // the nodes that share the store; nil without a cluster
	Health   func() (status string, ok bool) // nil means always healthy
	Writes   func() bool                     // whether the store accepts writes; nil means always
	Lease    func() error                    // an error while this node cannot know which sessions have ended (D18); nil means it always knows
	Logger   *slog.Logger                    // nil discards logs
	Now      func() time.Time                // nil means time.Now
}

// Dashboard is an http.Handler. It handles the paths for which Serves returns true. It is safe for
// concurrent use. The caller must close it.
type Dashboard struct {
	Options
	account   account
	sessions  sessions
	throttle  throttle
	audit     audit
	programs  programs
	refusals  refusals
	figures   figures
	pasts     pasts
	revisions revisions
	hashing   chan struct{} // holds one element for each password that is being hashed
	origin    *http.CrossOriginProtection
	base      url.URL // At or BaseURL, parsed
	mux       *http.ServeMux

	// Only the sampling goroutine uses these fields. Close uses them too, but only after that
	// goroutine has ended. So they need no lock.
	written    map[int64]string // contents of the figures documents by hour, to skip writes that change nothing
	complained bool             // the last attempt to store figures failed and was logged

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
	if o.Lease == nil {
		o.Lease = func() error { return nil }
	}
	if o.Cluster == nil {
		o.Cluster = func() string { return "" }
	}
	if o.Troubles == nil {
		o.Troubles = func() []Trouble { return nil }
	}
	if o.Store == nil {
		o.Store = func() Store { return Store{} }
	}
}

// Open loads the account, the audit log and the stored figures, and starts sampling. It fails if
// the store cannot be read. A single unreadable audit entry or hour of figures is logged and
// skipped.
func Open(ctx context.Context, o Options) (*Dashboard, error) {
	o.defaults()
	d := &Dashboard{
		Options: o, hashing: make(chan struct{}, hashers), closing: make(chan struct{}), origin: http.NewCrossOriginProtection(),
		written: map[int64]string{}, revisions: revisions{of: map[string]engine.Revision{}},
	}
	if err := d.trustBase(); err != nil {
		return nil, fmt.Errorf("open dashboard: %w", err)
	}
	d.sessions = sessions{
		docs: o.Documents, account: &d.account, catchUp: o.Access.CatchUpTogether, lease: o.Lease, writes: o.Writes, logger: o.Logger,
		now: o.Now, all: map[digest]*session{},
	}
	d.throttle = newThrottle(o.Now)
	d.throttle.locked = func(client netip.Addr, wait time.Duration) {
		o.Logger.Warn("signing in is locked after wrong passwords", "from", client, "wait", wait.Round(time.Second))
	}
	d.refusals.dirty = map[*refusal]bool{}
	d.figures.fine = ring{every: fineEvery, kept: fineKept}
	d.figures.coarse = ring{every: coarseEvery, kept: coarseKept}
	d.figures.usage.hours = map[int64]map[string]uint64{}
	d.audit.excess = map[string]struct{}{}
	for _, load := range []func(context.Context) error{d.follow, d.loadRefusals, d.loadFigures} {
		if err := load(ctx); err != nil {
			return nil, fmt.Errorf("open dashboard: %w", err)
		}
	}
	d.routes()
	d.tick(ctx) // reads the counters, so that the first sample counts from now on
	d.pasts.take(d.Now(), d.Hub, d.Access)
	d.work.Go(d.run)
	return d, nil
}

// trustBase makes the dashboard accept requests whose Origin is the base URL. Behind a proxy, the
// Host that the server sees can differ from the Origin that the browser sends. Without trustBase
// the dashboard would then refuse its own forms as requests from another site. A loopback base URL,
// the default, is not trusted this way: on the machine of the browser, this origin can belong to
// another program.
func (d *Dashboard) trustBase() error {
	base, err := url.Parse(cmp.Or(d.At, d.BaseURL))
	if err != nil || base.Host == "" {
		return err
	}
	d.base = *base
	if ip, err := netip.ParseAddr(base.Hostname()); err == nil && ip.IsLoopback() || base.Hostname() == "localhost" {
		return nil
	}
	host := strings.ToLower(base.Host) // browsers send origins in lower case, without the default port
	if base.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	} else {
		host = strings.TrimSuffix(host, ":80")
	}
	return d.origin.AddTrustedOrigin(base.Scheme + "://" + host)
}

// Close stops sampling. It stores the figures, refused sign-ins and changes of sessions that are not
// stored yet, and logs an error if that fails. Call it once, after the last request.
func (d *Dashboard) Close(ctx context.Context) {
	close(d.closing)
	d.work.Wait()
	c := d.read()
	d.figures.mu.Lock()
	if c.taken.Sub(d.figures.coarse.last.taken) >= time.Second { // also store the current minute, which is not complete
		d.figures.coarse.add(c.since(&d.figures.coarse.last))
	}
	d.figures.usage.take(c.taken, d.Access.Taken())
	d.figures.mu.Unlock()
	d.keepFigures(ctx)
	d.keepRefusals(ctx)
	if err := d.sessions.keep(ctx); err != nil {
		d.Logger.Warn("failed to store changes of sessions", "error", err)
	}
	d.programs.keep(ctx, d, true)
}

// Serves reports whether the dashboard handles a URL path.
func Serves(path string) bool {
	return path == "/" || path == "/dashboard" || strings.HasPrefix(path, "/dashboard/")
}

// policy is the Content-Security-Policy: a page loads scripts, styles, images and data from this
// server only, and has no inline scripts or styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler. It refuses state-changing requests from other sites.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send "Origin: null" for the dashboard's own forms
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
		d.refuse(w, r, nil, weir.Errorf(weir.ProjectForbidden, "the request came from another site and was refused"))
		return
	}
	d.mux.ServeHTTP(w, r)
}

// routes registers the handlers. All but the sign-in page and the assets require a session.
func (d *Dashboard) routes() {
	d.mux = http.NewServeMux()
	d.mux.Handle("GET /{$}", http.RedirectHandler("/dashboard", http.StatusFound))
	d.mux.HandleFunc("GET /dashboard/assets/{name...}", d.asset)
	open := func(pattern string, f func(*visit) error) { d.mux.HandleFunc(pattern, d.visit(f, false)) }
	open("GET /dashboard/sign-in", (*visit).signInPage)
	open("POST /dashboard/sign-in", (*visit).signIn)
	for pattern, f := range map[string]func(*visit) error{
		"GET /dashboard":                                     (*visit).overview,
		"GET /dashboard/figures":                             (*visit).overviewFigures,
		"GET /dashboard/cluster":                             (*visit).cluster,
		"GET /dashboard/cluster/figures":                     (*visit).clusterFigures,
		"GET /dashboard/streams":                             (*visit).streams,
		"POST /dashboard/streams":                            (*visit).createStream,
		"GET /dashboard/streams/new":                         (*visit).newStream,
		"GET /dashboard/streams/pick":                        (*visit).pickStreams,
		"GET /dashboard/streams/{id}":                        (*visit).stream,
		"GET /dashboard/streams/{id}/figures":                (*visit).streamFigures,
		"GET /dashboard/streams/{id}/events":                 (*visit).events,
		"GET /dashboard/streams/{id}/events/{place}":         (*visit).event,
		"POST /dashboard/streams/{id}/publish":               (*visit).publish,
		"POST /dashboard/streams/{id}/subscribers/{request}": (*visit).endSubscriber,
		"GET /dashboard/streams/{id}/connect":                (*visit).connect,
		"POST /dashboard/streams/{id}/connect":               (*visit).connectKey,
		"GET /dashboard/streams/{id}/delete":                 (*visit).confirmDelete,
		"POST /dashboard/streams/{id}/delete":                (*visit).deleteStream,
		"GET /dashboard/projects":                            (*visit).projects,
		"POST /dashboard/projects":                           (*visit).createProject,
		"POST /dashboard/projects/{id}":                      (*visit).renameProject,
		"GET /dashboard/projects/{id}/delete":                (*visit).confirmDeleteProject,
		"POST /dashboard/projects/{id}/delete":               (*visit).deleteProject,
		"GET /dashboard/keys":                                (*visit).keys,
		"POST /dashboard/keys":                               (*visit).createKey,
		"GET /dashboard/keys/new":                            (*visit).newKey,
		"GET /dashboard/keys/{id}":                           (*visit).key,
		"GET /dashboard/keys/{id}/figures":                   (*visit).keyFigures,
		"POST /dashboard/keys/{id}/revoke":                   (*visit).revokeKey,
		"GET /dashboard/keys/{id}/rotate":                    (*visit).rotation,
		"POST /dashboard/keys/{id}/rotate":                   (*visit).rotateKey,
		"GET /dashboard/requests":                            (*visit).requests,
		"GET /dashboard/requests/log":                        (*visit).requestLog,
		"GET /dashboard/audit":                               (*visit).auditPage,
		"GET /dashboard/account":                             (*visit).accountPage,
		"POST /dashboard/account/password":                   (*visit).changePassword,
		"POST /dashboard/account/sessions":                   (*visit).signOutEverywhere,
		"POST /dashboard/account/tokens":                     (*visit).createToken,
		"POST /dashboard/account/tokens/{id}":                (*visit).revokeToken,
		"POST /dashboard/sign-out":                           (*visit).signOut,
		"/dashboard/":                                        (*visit).none,
	} {
		d.mux.HandleFunc(pattern, d.visit(f, true))
	}
}
