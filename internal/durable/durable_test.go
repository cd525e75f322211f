package durable_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/access"
	"weir/internal/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is a response whose body was read.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request. The header fields are pairs of name and value.
func send(t *testing.T, method, url, key, body string, fields ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (a answer) want(t *testing.T, status int, body string) answer {
	t.Helper()
	if a.status != status || body != "" && a.body != body {
		t.Errorf("got %d %s, want %d %s", a.status, a.body, status, body)
	}
	return a
}

// Keys, permissions and projects have the same effect under /ds as under /v1, and every response
// has a request id.
func TestAccess(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	all, reader, writer := s.NewKey(), s.NewKey(access.Read), s.NewKey(access.Publish)
	url, text := s.URL()+"/ds/a/b", []string{"Content-Type", "text/plain"}
	if a := send(t, "PUT", url, "", "", text...).want(t, 401, ""); !strings.HasPrefix(a.header.Get("X-Request-Id"), "req_") {
		t.Errorf("the header fields are %v, want a request id", a.header)
	}
	send(t, "PUT", url, reader, "", text...).want(t, 403, "")
	send(t, "PUT", url, all, "one", text...).want(t, 201, "")
	send(t, "POST", url, reader, "x", text...).want(t, 403, "")
	send(t, "POST", url, writer, "two", text...).want(t, 204, "")
	send(t, "GET", url, writer, "").want(t, 403, "")
	send(t, "GET", url, reader, "").want(t, 200, "onetwo")
	send(t, "DELETE", url, writer, "").want(t, 403, "")
	send(t, "PATCH", url, all, "").want(t, 405, "")
	send(t, "GET", s.URL()+"/ds/__ds/subscriptions/x", all, "").want(t, 404, "")
	send(t, "GET", s.URL()+"/ds/", all, "").want(t, 404, "")
	send(t, "DELETE", url, all, "").want(t, 204, "")
	send(t, "GET", url, all, "").want(t, 404, "")
}

// A batch that is written through /ds can be read through /v1, and the other way round.
func TestTwoFaces(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	key, json := s.NewKey(), []string{"Content-Type", "application/json"}
	send(t, "PUT", s.URL()+"/ds/orders", key, "", json...).want(t, 201, "")
	send(t, "POST", s.URL()+"/ds/orders", key, `[{"n":1}, {"n":2}]`, json...).want(t, 204, "")
	list := send(t, "GET", s.URL()+"/v1/streams", key, "").want(t, 200, "").body
	_, rest, _ := strings.Cut(list, `"id":"`)
	id := rest[:22]
	send(t, "GET", s.URL()+"/v1/streams/"+id+"/batches/1", key, "").want(t, 200, "")
	if got := send(t, "GET", s.URL()+"/v1/streams/"+id+"/batches/1", key, "").body; !strings.Contains(got, `"events":[{"n":1},{"n":2}]`) {
		t.Errorf("batch 1 is %s", got)
	}
	send(t, "POST", s.URL()+"/v1/streams/"+id+"/publish", key, `{"events":[3,[4]]}`, json...).want(t, 202, "")
	for _, path := range []string{"orders", id} {
		a := send(t, "GET", s.URL()+"/ds/"+path+"?offset=-1", key, "").want(t, 200, `[{"n":1},{"n":2},3,[4]]`)
		if got := a.header.Get("Stream-Next-Offset"); got != "0000000000000002_0000000000000000" {
			t.Errorf("the next offset is %s, want the position after batch 2", got)
		}
	}
	send(t, "POST", s.URL()+"/v1/streams/"+id+"/close", key, "").want(t, 200, "")
	if a := send(t, "POST", s.URL()+"/ds/orders", key, `1`, json...).want(t, 409, ""); a.header.Get("Stream-Closed") != "true" {
		t.Errorf("the header fields are %v, want Stream-Closed: true", a.header)
	}
}

// A read at an offset whose data was evicted gets 410. A read from the start begins with the oldest
// data that is kept.
func TestEvicted(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	key, raw := s.NewKey(), []string{"Content-Type", "application/octet-stream"}
	made := send(t, "POST", s.URL()+"/v1/streams", key, `{"name":"small","mode":"raw","max_bytes":1048576}`, "Content-Type", "application/json").want(t, 201, "")
	_, rest, _ := strings.Cut(made.body, `"id":"`)
	url := s.URL() + "/ds/" + rest[:22]
	for _, c := range "abcd" {
		send(t, "POST", url, key, strings.Repeat(string(c), 400_000), raw...).want(t, 204, "")
	}
	send(t, "GET", url+"?offset=0000000000000001_0000000000000000", key, "").want(t, 410, "")
	if got := send(t, "GET", url, key, "").want(t, 200, "").body; len(got) != 800_000 || got[0] != 'c' {
		t.Errorf("got %d bytes that begin with %.1s, want 800000 bytes that begin with c", len(got), got)
	}
}

// The metrics name the methods and statuses of the protocol. If the data at the offset of a live read
// was evicted, the server ends the read. The metrics do not count that as a failure.
func TestStats(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	raw := []string{"Content-Type", "application/octet-stream"}
	made := send(t, "POST", s.URL()+"/v1/streams", s.Key, `{"name":"small","mode":"raw","max_bytes":1048576}`, "Content-Type", "application/json").want(t, 201, "")
	_, rest, _ := strings.Cut(made.body, `"id":"`)
	url := s.URL() + "/ds/" + rest[:22]
	for range 3 {
		send(t, "POST", url, s.Key, strings.Repeat("x", 400_000), raw...).want(t, 204, "")
	}
	const first = "?offset=0000000000000000_0000000000000001"
	send(t, "GET", url+first, s.Key, "").want(t, 410, "")
	send(t, "GET", url+first+"&live=sse", s.Key, "").want(t, 200, "")
	tag := send(t, "GET", url, s.Key, "").want(t, 200, "").header.Get("ETag")
	send(t, "GET", url, s.Key, "", "If-None-Match", tag).want(t, 304, "")
	send(t, "PUT", url, s.Key, "", raw...).want(t, 200, "")
	want := map[string]uint64{"POST 204": 3, "GET 410": 1, "GET 200": 2, "GET 304": 1, "PUT 200": 1}
	for end := time.Now().Add(time.Minute); ; { // a request is counted a moment after its response
		got, all, stats := map[string]uint64{}, uint64(0), s.API.Stats()
		for _, r := range stats.Requests {
			if r.Route == "/ds/{path}" {
				got[fmt.Sprint(r.Method, " ", r.Status)] = r.Count
				all += r.Count
			}
		}
		if all < 8 && time.Now().Before(end) {
			runtime.Gosched()
			continue
		}
		if !maps.Equal(got, want) {
			t.Errorf("the requests are %v, want %v", got, want)
		}
		if stats.Ended["reconnect"] != 1 || stats.Ended["failed"] != 0 {
			t.Errorf("ended subscriptions are %v, want 1 reconnect and 0 failed", stats.Ended)
		}
		return
	}
}

// A long poll counts as a subscription (D34), and ends when its key is revoked (D18).
func TestLongPollIsASubscription(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--max-subscribers", "1", "--ds-long-poll", "5m"}})
	record, key, err := s.Access.CreateKey(t.Context(), access.KeySpec{Project: s.Project, Kind: access.Live, Permissions: []access.Permission{access.Read}})
	if err != nil {
		t.Fatal(err)
	}
	url := s.URL() + "/ds/polled"
	send(t, "PUT", url, s.Key, "", "Content-Type", "text/plain").want(t, 201, "")
	polled := make(chan answer)
	go func() { polled <- send(t, "GET", url+"?offset=now&live=long-poll", key.Reveal(), "") }()
	for s.API.Subscribers() == 0 {
		runtime.Gosched()
	}
	send(t, "GET", url+"?offset=now&live=sse", s.Key, "").want(t, 503, "")
	if _, err := s.Access.Revoke(t.Context(), record.ID); err != nil {
		t.Fatal(err)
	}
	(<-polled).want(t, 401, "")
}

// Deleting a stream frees its content, even if forks of it exist. Its path answers 410 until the last
// fork is deleted.
func TestDeleteWithForks(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	key, text := s.Key, []string{"Content-Type", "text/plain"}
	source, fork := s.URL()+"/ds/source", s.URL()+"/ds/fork"
	send(t, "PUT", source, key, "content", text...).want(t, 201, "")
	send(t, "PUT", fork, key, "", "Stream-Forked-From", "/ds/source").want(t, 201, "")
	send(t, "DELETE", source, key, "").want(t, 204, "")
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
		send(t, method, source, key, "x", text...).want(t, 410, "")
	}
	send(t, "PUT", source, key, "", text...).want(t, 409, "")
	if list := send(t, "GET", s.URL()+"/v1/streams", key, "").want(t, 200, "").body; strings.Count(list, `"bytes_stored":0,`) != 1 {
		t.Errorf("the content was kept: %s", list)
	}
	send(t, "GET", fork, key, "").want(t, 200, "content")
	send(t, "DELETE", fork, key, "").want(t, 204, "")
	send(t, "GET", source, key, "").want(t, 404, "")
	send(t, "PUT", source, key, "again", text...).want(t, 201, "")
	send(t, "GET", source, key, "").want(t, 200, "again")
}

// A stream can be created with a lifetime that has already ended. It is gone at once.
func TestLifetimeInThePast(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	for name, field := range map[string][2]string{
		"zero": {"Stream-TTL", "0"},
		"past": {"Stream-Expires-At", "2020-01-01T00:00:00Z"},
	} {
		url := s.URL() + "/ds/" + name
		send(t, "PUT", url, s.Key, "text", "Content-Type", "text/plain", field[0], field[1]).want(t, 201, "")
		send(t, "GET", url, s.Key, "").want(t, 404, "")
	}
}
