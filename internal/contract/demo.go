package contract

import (
	"net/http"
	"strconv"
	"time"
)

// The demo stream and its public key (D22).
const (
	DemoStream = "demo000000000000000000"
	DemoKey    = "svc_test_0123456789abcdef0123456789abcdef"
)

const demoPath = "/v1/streams/" + DemoStream

// demoCases share one rate-limit window of 60 requests per minute. All cases but the last send few
// requests. The last case uses up the window.
var demoCases = []Case{
	{"readable without a key", `spec: "read-only access to the public demo stream" needs no key; D22: any valid key works too`, func(t *T) {
		t.demo()
		for _, k := range []string{"", DemoKey, t.Live, t.OtherLive} {
			var s Stream
			t.Get(demoPath, WithKey(k)).Want(200).decode(&s)
			t.checkStream(s)
			t.Get(demoPath+"/cursor", WithKey(k)).Want(200)
			if s.Cursor > 0 {
				t.Get(BatchPath(DemoStream, s.Cursor), WithKey(k)).Want(200)
				t.Get(PagePath(DemoStream, "last=1"), WithKey(k)).Want(200)
			}
		}
		t.do(http.MethodHead, demoPath, WithKey("")).Want(200)
	}},
	{"fed every second", `D22: the demo stream gets a small event every second`, func(t *T) {
		t.demo()
		sub := t.Subscribe(DemoStream, "", WithKey(""))
		var first int64
		for i := range int64(3) {
			e := sub.Next()
			seq, err := strconv.ParseInt(e.ID, 10, 64)
			if err != nil || e.Name != "batch" {
				t.Fatalf("got event %+v, want a batch", e)
			}
			if i == 0 {
				first = seq
			} else if seq != first+i {
				t.Errorf("got batch %d after %d", seq, first+i-1)
			}
		}
		t.Subscribe(DemoStream, "", WithKey(DemoKey)).Next()
	}},
	{"read only", `spec: the demo key "can only read the demo stream and cannot publish"; D22: no key can delete the demo stream or publish to it over the API`, func(t *T) {
		t.demo()
		for _, k := range []string{DemoKey, t.Live} {
			t.Post(NextPath(DemoStream), JSONBody(`{"events":[]}`), WithKey(k)).Refused(403, forbidden)
			t.Post(SeqPath(DemoStream, 1<<40), JSONBody(`{"events":[]}`), WithKey(k)).Refused(403, forbidden)
			t.Delete(demoPath, WithKey(k)).Refused(403, forbidden)
		}
		t.Post(NextPath(DemoStream), JSONBody(`{"events":[]}`), WithKey("")).Refused(401, "missing_api_key")
		t.Delete(demoPath, WithKey("")).Refused(401, "missing_api_key")
		t.Post("/v1/streams", JSONBody(`{"name":"x"}`), WithKey(DemoKey)).Refused(403, forbidden)
		t.Post("/v1/streams", JSONBody(`{"name":"x","id":"`+DemoStream+`"}`)).Refused(409, "stream_name_taken")
	}},
	{"nothing else", `spec: the demo key "can only read the demo stream"; D22: with the demo key, the list of streams shows only the demo stream`, func(t *T) {
		t.demo()
		s := t.jsonStream()
		t.Get("/v1/streams/"+s.ID, WithKey(DemoKey)).Refused(403, forbidden)
		t.Get("/v1/streams/"+NewID(), WithKey(DemoKey)).Refused(404, "stream_not_found")
		if got := ids(t.page("", WithKey(DemoKey))); len(got) != 1 || got[0] != DemoStream {
			t.Errorf("the list for the demo key shows %v", got)
		}
		t.Get("/v1/streams", WithKey("")).Refused(401, "missing_api_key")
		t.Get(demoPath, WithKey("svc_test_0")).Refused(401, "invalid_api_key")
		t.Get(demoPath, WithKey(unknownKey)).Refused(401, "invalid_api_key")
	}},
	{"rate limit", `spec: the demo key "is limited to 60 requests per minute per IP"; D22: requests without a key share this window; D23: X-Forwarded-For counts only when it comes from a trusted proxy`, func(t *T) {
		t.demo()
		limit := t.Get(demoPath, WithKey("")).window().limit
		if limit == unlimited || limit > 1000 {
			t.Skipf("the demo allows %d requests per minute on this target, too many for this case to send", limit)
		}
		refused := t.exhaust(limit, func(i int64) *Answer {
			return t.Get(demoPath, WithKey([]string{"", DemoKey}[i%2]), WithHeader("X-Forwarded-For", "192.0.2."+strconv.FormatInt(i%250, 10)))
		})
		t.checkLimited(refused)
		t.Get(demoPath, WithKey("")).Refused(429, "rate_limited")
		t.Get(demoPath, WithKey(DemoKey)).Refused(429, "rate_limited")
		t.Get(demoPath).Want(200) // the live key has its own window
		t.Get("/v1/health", WithKey("")).Want(200)
	}},
}

// demo skips the case if the target has no demo. If the demo's rate-limit window is used up, it
// waits for the next window.
func (t *T) demo() {
	t.Helper()
	if !t.Demo {
		t.Skip("this target has no demo")
	}
	Eventually(t, 65*time.Second, "the demo can be read", func() bool { return t.Get(demoPath, WithKey("")).Status == 200 })
}

// exhaust sends requests until one is refused with 429, and returns that response. It fails the
// test if a window allows more or fewer requests than the parameter limit says. A new window may
// begin once in the meantime, so exhaust may need twice as many requests.
func (t *T) exhaust(limit int64, ask func(i int64) *Answer) *Answer {
	t.Helper()
	var last window
	for i := range 2*limit + 2 {
		a := ask(i)
		w := a.window()
		if w.limit != limit {
			t.Fatalf("the limit changed from %d to %d", limit, w.limit)
		}
		if w.reset == last.reset && w.remaining != max(last.remaining-1, 0) {
			t.Errorf("within one window, remaining went from %d to %d, want one less", last.remaining, w.remaining)
		}
		spent := w.reset == last.reset && last.remaining == 0
		if a.Status == 429 {
			if w.reset == last.reset && !spent {
				t.Errorf("a request was refused although %d remained", last.remaining)
			}
			return a
		}
		if spent {
			t.Fatalf("a request was allowed when none remained")
		}
		last = w
	}
	t.Fatalf("a limit of %d allowed %d requests", limit, 2*limit+2)
	return nil
}

// checkLimited checks a response with status 429.
func (t *T) checkLimited(a *Answer) {
	t.Helper()
	a.Refused(429, "rate_limited")
	wait, err := strconv.ParseInt(a.Header.Get("Retry-After"), 10, 64)
	w := a.window()
	if err != nil || wait < 1 || wait > 60 || w.remaining != 0 {
		t.Errorf("retry-after is %q with %d remaining, want 1 to 60 with 0 remaining", a.Header.Get("Retry-After"), w.remaining)
	}
	if until := w.reset - time.Now().Unix(); wait < until-2 || wait > until+2 {
		t.Errorf("retry-after is %d s, but the window resets in %d s", wait, until)
	}
}
