package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// testService is a running service with the demo stream, two projects, and keys of every kind.
type testService struct {
	*servicetest.Service
	t      testing.TB
	client map[string]*http.Client // the map key is the protocol

	other   weir.ProjectID        // a second project
	ids     map[string]string     // stream ids, by the name of the stream
	keys    map[string]string     // secrets of keys, by the name of the key
	records map[string]access.Key // keys without their secrets, by the name of the key
}

var protocols = []string{"HTTP/1.1", "h2c"}

// noListener is the name of the protocol for requests that go directly to the API. They do not pass
// through the listener and the other handlers of the service.
const noListener = "no listener"

type direct struct{ *api.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	in := httptest.NewRequest(r.Method, r.URL.RequestURI(), r.Body)
	in.Header = r.Header
	w := httptest.NewRecorder()
	d.ServeHTTP(w, in)
	return w.Result(), nil
}

// startService starts a service with these arguments for weir serve. Unless they say otherwise, the
// grace period for gaps is longer than any test, and a project can have 50 streams.
func startService(t testing.TB, args ...string) *testService {
	t.Helper()
	return startServiceWith(t, servicetest.Options{Args: args})
}

func startServiceWith(t testing.TB, o servicetest.Options) *testService {
	t.Helper()
	o.Args = append([]string{"--base-url", "https://weir.example", "--demo", "--gap-grace", "1m", "--streams-per-project", "50"}, o.Args...)
	svc := &testService{
		Service: servicetest.Start(t, o), t: t, client: map[string]*http.Client{},
		ids: map[string]string{}, keys: map[string]string{}, records: map[string]access.Key{},
	}
	for _, name := range protocols {
		var p http.Protocols
		p.SetHTTP1(name == "HTTP/1.1")
		p.SetUnencryptedHTTP2(name == "h2c")
		tr := &http.Transport{Protocols: &p, DisableCompression: true, ExpectContinueTimeout: time.Second}
		svc.client[name] = &http.Client{Transport: tr, Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		t.Cleanup(tr.CloseIdleConnections)
	}
	svc.client[noListener] = &http.Client{Transport: direct{svc.API}}
	svc.populate()
	return svc
}

// populate creates the second project, the streams and the keys.
func (svc *testService) populate() {
	svc.t.Helper()
	ctx := context.Background()
	must := func(err error) {
		svc.t.Helper()
		if err != nil {
			svc.t.Fatal(err)
		}
	}
	theirs, err := svc.Access.CreateProject(ctx, "theirs")
	must(err)
	svc.other = theirs.ID
	for _, s := range []hub.Spec{
		{Name: "id"}, {Name: "raw", Mode: weir.Raw}, {Name: "other"}, {Name: "theirs", Project: theirs.ID},
		{Name: "small", Mode: weir.Raw, MaxBytes: weir.MinMaxBytes}, {Name: "smalljson", MaxBytes: weir.MinMaxBytes},
	} {
		svc.ids[s.Name] = string(svc.NewStream(s))
	}
	svc.ids["demo"], svc.ids["none"] = string(access.DemoStream), string(weir.NewStreamID())
	for name, s := range map[string]access.KeySpec{
		"live": {Kind: access.Live}, "test": {Kind: access.Test}, "revoked": {Kind: access.Live},
		"theirs":   {Project: theirs.ID, Kind: access.Live},
		"reader":   {Kind: access.Live, Permissions: []access.Permission{access.Read}},
		"writer":   {Kind: access.Live, Permissions: []access.Permission{access.Publish}},
		"manager":  {Kind: access.Live, Permissions: []access.Permission{access.Manage}},
		"confined": {Kind: access.Live, Streams: []weir.StreamID{weir.StreamID(svc.ids["other"]), weir.StreamID(svc.ids["none"])}},
	} {
		if s.Project == "" {
			s.Project = svc.Project
		}
		record, secret, err := svc.Access.CreateKey(ctx, s)
		must(err)
		svc.keys[name], svc.records[name] = secret.Reveal(), record
	}
	_, err = svc.Access.Revoke(ctx, svc.records["revoked"].ID)
	must(err)
	svc.keys["demo"], svc.keys["unknown"] = access.DemoKey, "svc_live_"+strings.Repeat("0", 32)
}

// address is the host and port of the service.
func (svc *testService) address() string { return strings.TrimPrefix(svc.HTTP, "http://") }

// object returns the current stream object, or an empty object if there is no such stream.
func (svc *testService) object(id string) weir.Stream {
	s, err := svc.Hub.Stream(weir.StreamID(id))
	if err != nil {
		return weir.Stream{}
	}
	object, err := s.Object(context.Background())
	if err != nil {
		svc.t.Fatal(err)
	}
	return object
}

// fill replaces {name} with the id of the stream that has this name, and {key:name} with the secret
// of the key that has this name.
func (svc *testService) fill(s string) string {
	if !strings.Contains(s, "{") {
		return s
	}
	for name, id := range svc.ids {
		s = strings.ReplaceAll(s, "{"+name+"}", id)
	}
	for name, key := range svc.keys {
		s = strings.ReplaceAll(s, "{key:"+name+"}", key)
	}
	return s
}

// request returns a request. Each header is "name: value". The header "key: name" stands for the
// key with this name, and "key: " for no key. Without such a header, the request has the key
// "live".
func (svc *testService) request(method, path string, header []string, body string) *http.Request {
	svc.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, svc.HTTP+svc.fill(path), r)
	if err != nil {
		svc.t.Fatalf("%s %s: %v", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+svc.keys["live"])
	cleared := map[string]bool{}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		value = svc.fill(value)
		switch {
		case name == "key" && value == "":
			req.Header.Del("Authorization")
			continue
		case name == "key":
			name, value = "Authorization", "Bearer "+svc.keys[value]
		}
		if !cleared[name] {
			req.Header.Del(name)
			cleared[name] = true
		}
		req.Header[http.CanonicalHeaderKey(name)] = append(req.Header[http.CanonicalHeaderKey(name)], value)
	}
	return req
}

// answer is a response whose body was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

func (svc *testService) do(protocol string, req *http.Request) answer {
	svc.t.Helper()
	resp, err := svc.client[protocol].Do(req)
	if err != nil {
		svc.t.Fatalf("%s %.200s over %s: %v", req.Method, req.URL, protocol, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		svc.t.Errorf("%s %.200s over %s: %v", req.Method, req.URL, protocol, err)
	}
	a := answer{resp.StatusCode, resp.Header, string(b)}
	if strings.HasPrefix(req.URL.Path, "/v1") {
		svc.checkUniversal(fmt.Sprintf("%s %s %.200s", protocol, req.Method, req.URL.Path), a)
	}
	return a
}

var (
	requestIDs = regexp.MustCompile(`^req_[0-9A-Za-z]{16}$`)
	numbers    = regexp.MustCompile(`^[0-9]+$`)
)

// checkUniversal checks the header fields that every response under /v1 has.
func (svc *testService) checkUniversal(what string, a answer) {
	svc.t.Helper()
	for name, want := range map[string]*regexp.Regexp{"x-request-id": requestIDs, "x-ratelimit-limit": numbers, "x-ratelimit-remaining": numbers, "x-ratelimit-reset": numbers,
		"cache-control": regexp.MustCompile(`^no-store$`), "server": regexp.MustCompile(`^svc$`), "x-content-type-options": regexp.MustCompile(`^nosniff$`)} {
		if v := a.header.Values(name); len(v) != 1 || !want.MatchString(v[0]) {
			svc.t.Errorf("%s: a response with status %d has %s %q", what, a.status, name, v)
		}
	}
}

// errorObject is the JSON body of an error response.
type errorObject struct {
	Error struct {
		Type, Code, Message string
		RequestID           string `json:"request_id"`
		DocURL              string `json:"doc_url"`
	}
}

// code returns the code of an error response, and checks the rest of the response against the table
// of error codes. For a response that is not an error, it returns the empty string.
func (svc *testService) code(what string, a answer) string {
	svc.t.Helper()
	if a.status < 400 {
		return ""
	}
	if ct := a.header.Get("content-type"); ct != "application/json" {
		svc.t.Errorf("%s: the error has the content type %q", what, ct)
	}
	var e errorObject
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		svc.t.Errorf("%s: decoding the error %[3]q: %[2]v", what, err, a.body)
	}
	all := api.Faults()
	i := slices.IndexFunc(all, func(f api.Fault) bool { return string(f.Code) == e.Error.Code })
	switch {
	case i < 0:
		svc.t.Errorf("%s: unknown code in %s", what, a.body)
	case all[i].Status != a.status || all[i].Type != e.Error.Type || e.Error.Message == "" || e.Error.RequestID != a.header.Get("x-request-id") ||
		e.Error.DocURL != "https://weir.example/docs/errors#"+e.Error.Code:
		svc.t.Errorf("%s: status %d does not fit the error %s", what, a.status, a.body)
	case (a.status == 401) != (a.header.Get("www-authenticate") == "Bearer"):
		svc.t.Errorf("%s: the www-authenticate field is %q", what, a.header.Get("www-authenticate"))
	case (a.status == 429 || a.status == 503) != (a.header.Get("retry-after") != ""):
		svc.t.Errorf("%s: the retry-after field is %q", what, a.header.Get("retry-after"))
	case (a.status == 405) != (a.header.Get("allow") != ""):
		svc.t.Errorf("%s: the allow field is %q", what, a.header.Get("allow"))
	}
	return e.Error.Code
}
