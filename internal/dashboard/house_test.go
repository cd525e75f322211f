package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "correct horse"

// house is a whole service with a dashboard, on a real listener.
type house struct {
	t      testing.TB
	engine engine.Engine
	hub    *hub.Hub
	access *access.Access
	api    *api.Handler
	d      *Dashboard
	url    string
	base   string // the base URL, if it is another one
	log    *lockedBuffer
	clock  *clock

	project weir.Project
	key     string
	keyID   string
	stream  weir.StreamID
}

// clock runs with the real one, and can be set forward.
type clock struct {
	mu  sync.Mutex
	off time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newHouse(t testing.TB) *house {
	t.Helper()
	h := &house{t: t, engine: memory.New(), log: &lockedBuffer{}, clock: &clock{}}
	logger := slog.New(slog.NewTextHandler(h.log, nil))
	ctx := context.Background()
	var err error
	h.access, err = access.Open(ctx, h.engine, access.Options{Demo: true})
	h.must(err)
	h.hub, err = hub.Open(ctx, h.engine, hub.Options{Frame: api.Frame, Logger: logger})
	h.must(err)
	h.api = api.New(api.Options{Hub: h.hub, Access: h.access, BaseURL: "http://weir.example", Logger: logger, CORSOrigins: []string{"*"}})
	var mux http.ServeMux
	srv := httptest.NewServer(&mux)
	h.url = srv.URL
	h.open(ctx)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if Serves(r.URL.Path) {
			h.d.ServeHTTP(w, r)
		} else {
			h.api.ServeHTTP(w, r)
		}
	})
	h.project, err = h.access.CreateProject(ctx, "default")
	h.must(err)
	s, err := h.hub.Create(ctx, hub.Spec{Project: h.project.ID, Name: "first", RetentionSeconds: 3600, MaxBytes: 1 << 20, Mode: weir.JSON})
	h.must(err)
	k, secret, err := h.access.CreateKey(ctx, access.KeySpec{Project: h.project.ID, Kind: access.Live, Name: "first"})
	h.must(err)
	h.stream, h.key, h.keyID = s.ID, secret.Reveal(), k.ID
	_, err = h.d.setPassword(ctx, password, 0)
	h.must(err)
	t.Cleanup(func() {
		h.hub.StopSubscriptions()
		srv.Close()
		h.d.Close(ctx)
		h.hub.Close()
		h.engine.Close()
	})
	return h
}

func (h *house) open(ctx context.Context) {
	h.t.Helper()
	d, err := Open(ctx, Options{
		Documents: h.engine, Hub: h.hub, Access: h.access, API: h.api, Client: os.DirFS("../../clients/js/src"),
		BaseURL: strings.TrimRight(cmp.Or(h.base, h.url), "/"), Version: "v1.2.3", Commit: "abc",
		Logger: slog.New(slog.NewTextHandler(h.log, nil)), Now: h.clock.now,
		Store: func() Store { return Store{Journal: 64 << 20, Live: 5 << 20, Free: 60 << 30, Size: 100 << 30} },
	})
	h.must(err)
	h.d = d
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// browser is somebody who looks at pages.
type browser struct {
	h *house
	*http.Client
	header http.Header
}

func (h *house) browser() *browser {
	jar, err := cookiejar.New(nil)
	h.must(err)
	tr := &http.Transport{}
	h.t.Cleanup(tr.CloseIdleConnections)
	return &browser{h, &http.Client{
		Jar: jar, Transport: tr, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, http.Header{"Accept": {"text/html"}}}
}

// signedIn is somebody who is in.
func (h *house) signedIn() *browser {
	h.t.Helper()
	b := h.browser()
	if status, _, _ := b.post("/dashboard/sign-in", "name", Account, "password", password); status != http.StatusSeeOther {
		h.t.Fatalf("signing in gives %d", status)
	}
	return b
}

func (b *browser) do(method, path, body, contentType string) (int, string, http.Header) {
	b.h.t.Helper()
	r, err := http.NewRequest(method, b.h.url+path, strings.NewReader(body))
	b.h.must(err)
	for name, values := range b.header {
		r.Header[name] = values
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := b.Do(r)
	b.h.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	b.h.must(err)
	return resp.StatusCode, string(text), resp.Header
}

func (b *browser) get(path string) (int, string, http.Header) {
	b.h.t.Helper()
	return b.do("GET", path, "", "")
}

// see gets a page that must be there.
func (b *browser) see(path string) string {
	b.h.t.Helper()
	status, text, _ := b.get(path)
	if status != http.StatusOK {
		b.h.t.Fatalf("%s gives %d: %s", path, status, text)
	}
	return text
}

func (b *browser) post(path string, pairs ...string) (int, string, http.Header) {
	b.h.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.do("POST", path, form.Encode(), "application/x-www-form-urlencoded")
}

// v1 asks the interface with a key.
func (h *house) v1(method, path, key, body string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequest(method, h.url+path, strings.NewReader(body))
	h.must(err)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(r)
	h.must(err)
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return resp.StatusCode, resp.Header.Get("x-request-id")
}

var keyPattern = regexp.MustCompile(`svc_(live|test)_[0-9a-f]{32}`)
