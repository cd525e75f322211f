package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/engine/memory"
	"weir/internal/hub"
)

// house is a whole service on a real listener, with two projects and keys of every sort.
type house struct {
	t      testing.TB
	hub    *hub.Hub
	access *access.Access
	api    *Handler
	url    string
	log    *lockedBuffer
	client map[string]*http.Client // by protocol

	project, stranger weir.ProjectID
	keys              map[string]string // by what they may
	ids               map[string]string // by name
	records           map[string]access.Key
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

// furnish may change the options of each room before it opens.
type furnish struct {
	api    func(*Options)
	hub    func(*hub.Options)
	limits *access.Limits
}

var protocols = []string{"HTTP/1.1", "h2c"}

func newHouse(t testing.TB, f furnish) *house {
	t.Helper()
	ctx := context.Background()
	h := &house{t: t, log: &lockedBuffer{}, client: map[string]*http.Client{}, keys: map[string]string{}, ids: map[string]string{}, records: map[string]access.Key{}}
	logger := slog.New(slog.NewTextHandler(h.log, nil))
	e := memory.New()
	limits := access.Limits{Demo: 1000}
	if f.limits != nil {
		limits = *f.limits
	}
	var err error
	if h.access, err = access.Open(ctx, e, access.Options{Demo: true, Limits: limits}); err != nil {
		t.Fatal(err)
	}
	ho := hub.Options{Frame: Frame, Logger: logger, GapGrace: time.Minute, StreamsPerProject: 50}
	if f.hub != nil {
		f.hub(&ho)
	}
	if h.hub, err = hub.Open(ctx, e, ho); err != nil {
		t.Fatal(err)
	}
	ao := Options{Hub: h.hub, Access: h.access, BaseURL: "https://weir.example", Version: "v1.2.3", Commit: "abc", Logger: logger, CORSOrigins: []string{"*"}}
	if f.api != nil {
		f.api(&ao)
	}
	h.api = New(ao)
	h.listenTo(h.api)
	h.people()
	t.Cleanup(func() {
		h.hub.Close()
		e.Close()
	})
	return h
}

func (h *house) listenTo(handler http.Handler) {
	srv := httptest.NewUnstartedServer(handler)
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	srv.Config.Protocols = &both
	srv.Config.DisableGeneralOptionsHandler = true
	srv.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelInfo)
	srv.Start()
	h.url = srv.URL
	for _, name := range protocols {
		var p http.Protocols
		p.SetHTTP1(name == "HTTP/1.1")
		p.SetUnencryptedHTTP2(name == "h2c")
		tr := &http.Transport{Protocols: &p, DisableCompression: true, ExpectContinueTimeout: time.Second}
		h.client[name] = &http.Client{Transport: tr, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		h.t.Cleanup(tr.CloseIdleConnections)
	}
	h.t.Cleanup(srv.Close)
}

// people makes projects, keys and streams.
func (h *house) people() {
	ctx := context.Background()
	must := func(err error) {
		h.t.Helper()
		if err != nil {
			h.t.Fatal(err)
		}
	}
	ours, err := h.access.CreateProject(ctx, "ours")
	must(err)
	theirs, err := h.access.CreateProject(ctx, "theirs")
	must(err)
	h.project, h.stranger = ours.ID, theirs.ID
	for _, s := range []hub.Spec{
		{Name: "id", Project: ours.ID}, {Name: "raw", Project: ours.ID, Mode: weir.Raw}, {Name: "other", Project: ours.ID},
		{Name: "theirs", Project: theirs.ID}, {Name: "small", Project: ours.ID, Mode: weir.Raw, MaxBytes: weir.MinMaxBytes},
		{Name: "smalljson", Project: ours.ID, MaxBytes: weir.MinMaxBytes},
		{Name: "demo", ID: access.DemoStream, Project: access.DemoProject},
	} {
		h.ids[s.Name] = string(h.make(s))
	}
	h.ids["none"] = string(weir.NewStreamID())
	for name, s := range map[string]access.KeySpec{
		"live": {Project: ours.ID, Kind: access.Live}, "test": {Project: ours.ID, Kind: access.Test}, "revoked": {Project: ours.ID, Kind: access.Live},
		"theirs":   {Project: theirs.ID, Kind: access.Live},
		"reader":   {Project: ours.ID, Kind: access.Live, Permissions: []access.Permission{access.Read}},
		"writer":   {Project: ours.ID, Kind: access.Live, Permissions: []access.Permission{access.Publish}},
		"manager":  {Project: ours.ID, Kind: access.Live, Permissions: []access.Permission{access.Manage}},
		"confined": {Project: ours.ID, Kind: access.Live, Streams: []weir.StreamID{weir.StreamID(h.ids["other"]), weir.StreamID(h.ids["none"])}},
	} {
		record, secret, err := h.access.CreateKey(ctx, s)
		must(err)
		h.keys[name], h.records[name] = secret.Reveal(), record
	}
	_, err = h.access.Revoke(ctx, h.records["revoked"].ID)
	must(err)
	h.keys["demo"], h.keys["unknown"] = access.DemoKey, "svc_live_"+strings.Repeat("0", 32)
}

func (h *house) make(s hub.Spec) weir.StreamID {
	h.t.Helper()
	s.RetentionSeconds = weir.DefaultRetention
	if s.MaxBytes == 0 {
		s.MaxBytes = weir.DefaultMaxBytes
	}
	if s.Mode == "" {
		s.Mode = weir.JSON
	}
	stream, err := h.hub.Create(context.Background(), s)
	if err != nil {
		h.t.Fatal(err)
	}
	return stream.ID
}

// object is a stream as it stands.
func (h *house) object(id string) weir.Stream {
	s, err := h.hub.Stream(weir.StreamID(id))
	if err != nil {
		return weir.Stream{}
	}
	object, err := s.Object(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	return object
}

// fill replaces {name} by the id of that stream, and {key:name} by that key.
func (h *house) fill(s string) string {
	if !strings.Contains(s, "{") {
		return s
	}
	for name, id := range h.ids {
		s = strings.ReplaceAll(s, "{"+name+"}", id)
	}
	for name, key := range h.keys {
		s = strings.ReplaceAll(s, "{key:"+name+"}", key)
	}
	return s
}

// request makes a request. Each header is "name: value"; a key by name comes with "key: name"; without one it is live's.
func (h *house) request(method, path string, header []string, body string) *http.Request {
	h.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, h.url+h.fill(path), r)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+h.keys["live"])
	cleared := map[string]bool{}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		value = h.fill(value)
		switch {
		case name == "key" && value == "":
			req.Header.Del("Authorization")
			continue
		case name == "key":
			name, value = "Authorization", "Bearer "+h.keys[value]
		}
		if !cleared[name] {
			req.Header.Del(name)
			cleared[name] = true
		}
		req.Header[http.CanonicalHeaderKey(name)] = append(req.Header[http.CanonicalHeaderKey(name)], value)
	}
	return req
}

// answer is an answer that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (h *house) do(protocol string, req *http.Request) answer {
	h.t.Helper()
	resp, err := h.client[protocol].Do(req)
	if err != nil {
		h.t.Fatalf("%s %s over %s: %v", req.Method, req.URL, protocol, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Errorf("%s %s over %s: %v", req.Method, req.URL, protocol, err)
	}
	a := answer{resp.StatusCode, resp.Header, string(b)}
	if strings.HasPrefix(req.URL.Path, "/v1") {
		h.checkUniversal(protocol+" "+req.Method+" "+req.URL.Path, a)
	}
	return a
}

var (
	requestIDs = regexp.MustCompile(`^req_[0-9A-Za-z]{16}$`)
	numbers    = regexp.MustCompile(`^[0-9]+$`)
)

// checkUniversal holds the header fields that every answer under /v1 has.
func (h *house) checkUniversal(what string, a answer) {
	h.t.Helper()
	for name, want := range map[string]*regexp.Regexp{"x-request-id": requestIDs, "x-ratelimit-limit": numbers, "x-ratelimit-remaining": numbers, "x-ratelimit-reset": numbers,
		"cache-control": regexp.MustCompile(`^no-store$`), "server": regexp.MustCompile(`^svc$`), "x-content-type-options": regexp.MustCompile(`^nosniff$`)} {
		if v := a.header.Values(name); len(v) != 1 || !want.MatchString(v[0]) {
			h.t.Errorf("%s: %d with %s %q", what, a.status, name, v)
		}
	}
}

// errorObject is the error envelope.
type errorObject struct {
	Error struct {
		Type, Code, Message string
		RequestID           string `json:"request_id"`
		DocURL              string `json:"doc_url"`
	}
}

// code is the code of an error answer, checked against the envelope's promises; empty for another answer.
func (h *house) code(what string, a answer) string {
	h.t.Helper()
	if a.status < 400 {
		return ""
	}
	if ct := a.header.Get("content-type"); ct != "application/json" {
		h.t.Errorf("%s: an error with content type %q", what, ct)
	}
	var e errorObject
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		h.t.Errorf("%s: %v in %q", what, err, a.body)
	}
	f := faultOf[weir.Code(e.Error.Code)]
	switch {
	case f == nil:
		h.t.Errorf("%s: unknown code in %s", what, a.body)
	case f.status != a.status || f.kind != e.Error.Type || e.Error.Message == "" || e.Error.RequestID != a.header.Get("x-request-id") ||
		e.Error.DocURL != "https://weir.example/docs/errors#"+e.Error.Code:
		h.t.Errorf("%s: %d %s", what, a.status, a.body)
	case (a.status == 401) != (a.header.Get("www-authenticate") == "Bearer"):
		h.t.Errorf("%s: www-authenticate %q", what, a.header.Get("www-authenticate"))
	case (a.status == 429 || a.status == 503) != (a.header.Get("retry-after") != ""):
		h.t.Errorf("%s: retry-after %q", what, a.header.Get("retry-after"))
	case (a.status == 405) != (a.header.Get("allow") != ""):
		h.t.Errorf("%s: allow %q", what, a.header.Get("allow"))
	}
	return e.Error.Code
}
