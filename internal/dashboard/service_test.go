package dashboard_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir"
	"weir/internal/dashboard"
	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "correct horse"

// testService is a running service whose dashboard has a known password. It can restart on the same
// store.
type testService struct {
	*servicetest.Service
	t       testing.TB
	options servicetest.Options
	engine  engine.Engine
	clock   *clock
	earlier string // log of the service before its last restart

	stream weir.StreamID // "clicks", the only stream of Project
	key    string        // Service.Key as it was after the first start
	keyID  string
}

// clock runs at the speed of the real clock. Tests can set it forward.
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

// startService starts a service with these arguments of weir serve.
func startService(t testing.TB, args ...string) *testService {
	t.Helper()
	return startServiceWith(t, servicetest.Options{Args: args})
}

// startServiceWith is like startService, but takes options. It sets their engine and clock.
func startServiceWith(t testing.TB, o servicetest.Options) *testService {
	t.Helper()
	svc := &testService{t: t, engine: memory.New(), clock: &clock{}}
	t.Cleanup(func() { svc.engine.Close() })
	o.Engine, o.KeepEngine, o.Now = svc.engine, true, svc.clock.now
	svc.options = o
	svc.Service = servicetest.Start(t, o)
	svc.stream = svc.NewStream(hub.Spec{Name: "clicks", RetentionSeconds: 3600, MaxBytes: weir.MinMaxBytes})
	svc.key, svc.keyID = svc.Key, svc.Access.Keys(svc.Project)[0].ID
	_, err := dashboard.SetPassword(svc.Dashboard, context.Background(), password, 0)
	svc.must(err)
	return svc
}

// restart stops the service and starts it again on the same store, with more arguments.
func (svc *testService) restart(args ...string) {
	svc.t.Helper()
	svc.Stop()
	svc.earlier = svc.log()
	o := svc.options
	o.Args = append(o.Args, args...)
	svc.Service = servicetest.Start(svc.t, o)
}

// log returns everything that the service has logged since its first start.
func (svc *testService) log() string { return svc.earlier + svc.Log.String() }

func (svc *testService) must(err error) {
	svc.t.Helper()
	if err != nil {
		svc.t.Fatal(err)
	}
}

// browser is an HTTP client that keeps cookies and follows no redirect.
type browser struct {
	svc *testService
	*http.Client
	header http.Header
}

func (svc *testService) browser() *browser {
	jar, err := cookiejar.New(nil)
	svc.must(err)
	tr := &http.Transport{}
	svc.t.Cleanup(tr.CloseIdleConnections)
	return &browser{svc, &http.Client{
		Jar: jar, Transport: tr, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, http.Header{"Accept": {"text/html"}}}
}

// signedIn returns a browser that has signed in.
func (svc *testService) signedIn() *browser {
	svc.t.Helper()
	b := svc.browser()
	if status, _, _ := b.post("/dashboard/sign-in", "name", dashboard.Account, "password", password); status != http.StatusSeeOther {
		svc.t.Fatalf("sign-in: status %d", status)
	}
	return b
}

func (b *browser) do(method, path, body, contentType string) (int, string, http.Header) {
	b.svc.t.Helper()
	r, err := http.NewRequest(method, b.svc.HTTP+path, strings.NewReader(body))
	b.svc.must(err)
	for name, values := range b.header {
		r.Header[name] = values
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := b.Do(r)
	b.svc.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	b.svc.must(err)
	return resp.StatusCode, string(text), resp.Header
}

func (b *browser) get(path string) (int, string, http.Header) {
	b.svc.t.Helper()
	return b.do("GET", path, "", "")
}

// see gets a page that must exist.
func (b *browser) see(path string) string {
	b.svc.t.Helper()
	status, text, _ := b.get(path)
	if status != http.StatusOK {
		b.svc.t.Fatalf("%s: status %d: %s", path, status, text)
	}
	return text
}

func (b *browser) post(path string, pairs ...string) (int, string, http.Header) {
	b.svc.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.do("POST", path, form.Encode(), "application/x-www-form-urlencoded")
}

// v1 sends a request to the API with a key. It returns the status and the id of the request.
func (svc *testService) v1(method, path, key, body string) (int, string) {
	svc.t.Helper()
	r, err := http.NewRequest(method, svc.HTTP+path, strings.NewReader(body))
	svc.must(err)
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(r)
	svc.must(err)
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return resp.StatusCode, resp.Header.Get("x-request-id")
}

var keyPattern = regexp.MustCompile(`svc_(live|test)_[0-9a-f]{32}`)
