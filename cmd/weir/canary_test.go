package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// canaries are words that the test sends in every place where a user may put a secret or a payload.
// Each has a unique part, so that the test can find it again in logs and files.
type canaries struct {
	mu      sync.Mutex
	planted map[string]bool // for each canary, whether the data directory may contain it
}

// word creates a canary. If kept is true, it may appear in the data directory.
func (c *canaries) word(kind string, kept bool) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := fmt.Sprintf("canary%s%04d", kind, len(c.planted))
	c.planted[w] = kept
	return w
}

// key creates an API key whose middle part is a canary. The middle part of a key must never be
// shown.
func (c *canaries) key() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	middle := fmt.Sprintf("ca4a4b%018x", len(c.planted)+1)
	c.planted[middle] = false
	return "svc_live_0000" + middle + "0000"
}

// song matches the text of any canary.
var song = regexp.MustCompile(`ca(?:nary[a-z]+[0-9]{4}|4a4b[0-9a-f]{18})`)

// find returns the canaries that a text contains, ignoring case. If inData is true, the text is
// from the data directory, and find leaves out the canaries that may appear there.
func (c *canaries) find(text []byte, inData bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for _, m := range song.FindAll(bytes.ToLower(text), -1) {
		if kept, ok := c.planted[string(m)]; ok && !(inData && kept) {
			found = append(found, string(m))
		}
	}
	return found
}

// caged is a server under test. It runs at log level debug, and the test keeps its output.
type caged struct {
	t        *testing.T
	cs       *canaries
	data     string
	url      string
	metrics  string
	out, log bytes.Buffer
	cmd      *exec.Cmd
	read     sync.WaitGroup // the goroutine that reads the log
	client   *http.Client
	stream   string
	rawID    string
}

// cage starts a server on a data directory.
func cage(t *testing.T, cs *canaries, data string, env []string, args ...string) *caged {
	t.Helper()
	program, err := exec.LookPath("weir")
	if err != nil {
		t.Fatal(err)
	}
	s := &caged{t: t, cs: cs, data: data, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
	s.cmd = exec.Command(program, append([]string{"serve", "--data", data, "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--pprof",
		"--log-level", "debug", "--log-format", "json", "--demo=false"}, args...)...)
	s.cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0"}, env...)
	s.cmd.Stdout = &s.out
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // has no effect if stop was called before
		s.cmd.Process.Kill()
		s.read.Wait()
		s.cmd.Wait()
	})
	ready := regexp.MustCompile(`"msg":"ready","http":"([^"]+)".*"metrics":"([^"]+)"`)
	for buf := make([]byte, 4<<10); s.url == ""; {
		n, err := pipe.Read(buf)
		s.log.Write(buf[:n])
		if m := ready.FindSubmatch(s.log.Bytes()); m != nil {
			s.url, s.metrics = string(m[1]), string(m[2])
		} else if err != nil {
			t.Fatalf("%v\n%s", err, s.log.String())
		}
	}
	s.read.Go(func() { io.Copy(&s.log, pipe) })
	return s
}

// stop ends the server and searches its output and its files for canaries.
func (s *caged) stop() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.read.Wait()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("weir serve: %v\n%s", err, s.log.String())
	}
	s.sings("the log", s.log.Bytes())
	if s.stream != "" && !bytes.Contains(s.log.Bytes(), []byte(`"level":"DEBUG","msg":"request"`)) {
		s.t.Error("requests were not logged")
	}
	s.sings("standard output", s.out.Bytes())
	err := filepath.WalkDir(s.data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		text = bytes.TrimRight(text, "\x00") // most of a segment is zeros at its end
		if found := s.cs.find(text, true); found != nil {
			s.t.Errorf("%s holds %q", path, found)
		}
		if found := s.cs.find([]byte(path), false); found != nil {
			s.t.Errorf("the path %s holds %q", path, found)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}

// sings fails the test if a text contains a canary.
func (s *caged) sings(what string, text []byte) {
	s.t.Helper()
	for _, w := range s.cs.find(text, false) {
		i := bytes.Index(bytes.ToLower(text), []byte(w))
		s.t.Errorf("%s holds %s: …%s…", what, w, text[max(0, i-200):min(len(text), i+100)])
	}
}

// do sends a request and returns the status and the body. It fails the test if an error response
// contains a canary.
func (s *caged) do(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 400 {
		s.sings(fmt.Sprintf("the answer %d to %s", resp.StatusCode, method), text)
		for name, values := range resp.Header {
			s.sings("the header field "+name, []byte(strings.Join(values, ",")))
		}
	}
	return resp.StatusCode, string(text)
}

// raw sends any bytes, which need not be valid HTTP, and reads the answer.
func (s *caged) raw(network, addr, text string) {
	s.t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, text)
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	answer, _ := io.ReadAll(c)
	if bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) {
		s.sings("the answer to "+network, answer)
	}
}

// Keys, cookies and other parts of a request never appear in a log (at any level), an error, a
// metric, a profile or a file. The only exceptions are the payloads and idempotency keys of
// accepted publishes, which the data directory may contain.
func TestCanaries(t *testing.T) {
	slowRaced(t)
	cs := &canaries{planted: map[string]bool{}}
	byFlag, byVariable, byFile := cs.key(), cs.key(), cs.key()
	file := filepath.Join(t.TempDir(), "weir.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "bootstrap-keys = [\"shop:%s\"]\n", byFile), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("flag", func(t *testing.T) {
		s := cage(t, cs, t.TempDir(), nil, "--bootstrap-keys", "shop:"+byFlag)
		s.watch()
		s.stop()
	})
	t.Run("file", func(t *testing.T) {
		s := cage(t, cs, t.TempDir(), nil, "--config", file)
		s.cmd.Process.Signal(syscall.SIGHUP)
		s.watch()
		s.stop()
	})
	t.Run("variable", func(t *testing.T) {
		s := cage(t, cs, t.TempDir(), []string{"WEIR_BOOTSTRAP_KEYS=shop:" + byVariable, "WEIR_SECRET=" + cs.word("env", false)})
		s.serves(byVariable)
		s.misleads(byVariable)
		s.garbles(byVariable)
		s.administers()
		s.watch()
		s.stop()
	})
}

// watch reads everything that the address for metrics serves, and searches it for canaries.
func (s *caged) watch() {
	s.t.Helper()
	for _, path := range []string{
		"/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs",
		"/debug/pprof/cmdline", "/" + s.cs.key() + "?" + s.cs.word("query", false),
	} {
		resp, err := s.client.Get(s.metrics + path)
		if err != nil {
			s.t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		s.sings(path, text)
	}
}

// serves sends the requests of well-behaved clients.
func (s *caged) serves(key string) {
	s.t.Helper()
	auth := []string{"Authorization", "Bearer " + key}
	json := append(auth, "Content-Type", "application/json")
	name := func(status, want int, body string) string {
		s.t.Helper()
		m := regexp.MustCompile(`"id":"([0-9A-Za-z]{22})"`).FindStringSubmatch(body)
		if status != want || m == nil {
			s.t.Fatalf("%d %s", status, body)
		}
		return m[1]
	}
	status, body := s.do("POST", "/v1/streams", `{"name":"a"}`, json...)
	s.stream = name(status, 201, body)
	status, body = s.do("POST", "/v1/streams", `{"name":"b","mode":"raw"}`, json...)
	s.rawID = name(status, 201, body)
	for _, r := range []struct {
		path, body string
		header     []string
	}{
		{s.stream + "/publish", `{"events":["` + s.cs.word("event", true) + `"],"other":"` + s.cs.word("member", false) + `"}`, json},
		{s.stream + "/publish", `{"events":["` + s.cs.word("event", true) + `"]}`, append(json, "Idempotency-Key", s.cs.word("idempotency", true))},
		{s.stream + "/7?api_key=" + s.cs.key(), `{"events":["` + s.cs.word("event", true) + `"]}`, append(json, "Cookie", "session="+s.cs.word("cookie", false))},
		{s.rawID + "/1", s.cs.word("raw", true), append(auth, "Content-Type", "application/octet-stream")},
	} {
		if status, body := s.do("POST", "/v1/streams/"+r.path, r.body, r.header...); status != 202 {
			s.t.Fatalf("%d %s", status, body)
		}
	}
	for _, h := range []string{"User-Agent", "Referer", "Origin", "X-Forwarded-For", "X-Api-Key", "X-Request-Id", "Cookie", "Accept", "Proxy-Authorization"} {
		s.do("GET", "/v1/streams/"+s.stream+"?"+s.cs.word("query", false)+"="+s.cs.key(), "", append(auth, h, s.cs.word("header", false))...)
	}
}

// misleads sends requests that contain secrets and payloads in the wrong places.
func (s *caged) misleads(key string) {
	s.t.Helper()
	auth := []string{"Authorization", "Bearer " + key}
	json := append(auth, "Content-Type", "application/json")
	basic := base64.StdEncoding.EncodeToString([]byte(s.cs.word("user", false) + ":" + s.cs.key()))
	for _, a := range []string{s.cs.key(), "Bearer " + s.cs.key(), "Bearer  " + s.cs.key(), "Bearer " + strings.ToUpper(s.cs.key()), "Basic " + basic,
		"Token " + s.cs.word("token", false), "Bearer " + s.cs.key() + "," + s.cs.key()} {
		s.do("GET", "/v1/streams", "", "Authorization", a)
		s.do("POST", "/v1/streams/"+s.stream+"/publish", `{"events":["`+s.cs.word("refused", false)+`"]}`, "Authorization", a, "Content-Type", "application/json")
	}
	s.do("GET", "/v1/streams", "", "Authorization", "Bearer "+s.cs.key(), "Authorization", "Bearer "+s.cs.key())
	for _, path := range []string{"/", "/v1/", "/v1/streams/", "/v1/streams/x/", "/v1/streams/" + s.stream + "/batches/", "/docs/"} {
		s.do("GET", path+s.cs.key(), "", auth...)
		s.do("GET", path+s.cs.word("path", false)+"%2f"+s.cs.word("path", false)+"?key="+s.cs.key(), "")
	}
	s.do("POST", "/v1/streams/"+s.stream+"/"+s.cs.word("seq", false), `{"events":[]}`, json...)
	s.do("GET", "/v1/streams?cursor="+s.cs.word("page", false), "", auth...)
	s.do("GET", "/v1/streams?limit="+s.cs.word("limit", false), "", auth...)
	s.do("GET", "/v1/streams/"+s.stream+"?cursor="+s.cs.word("from", false), "", append(auth, "Accept", "text/event-stream")...)
	s.do("GET", "/v1/streams/"+s.stream, "", append(auth, "Accept", "text/event-stream", "Last-Event-ID", s.cs.word("last", false))...)
	for _, body := range []string{`{"events":["%s"`, `{"events":"%s"}`, `{"%s":1}`, `["%s"]`, `%s`, `{"events":["%s",]}`, "{\"events\":[\"%s\xff\"]}", `{"events":[%s]}`,
		`{"events":[1],"events":["%s"]}`, `{"events":["%s\ud800"]}`} {
		s.do("POST", "/v1/streams/"+s.stream+"/publish", fmt.Sprintf(body, s.cs.word("malformed", false)), json...)
		s.do("POST", "/v1/streams", fmt.Sprintf(body, s.cs.word("malformed", false)), json...)
	}
	for _, body := range []string{`{"name":"a","mode":"%s"}`, `{"name":"a","id":"%s"}`, `{"name":"a","max_bytes":"%s"}`, `{"name":{"%s":1}}`} {
		s.do("POST", "/v1/streams", fmt.Sprintf(body, s.cs.word("field", false)), json...)
	}
	s.do("POST", "/v1/streams/"+s.stream+"/publish", s.cs.word("typed", false), append(auth, "Content-Type", s.cs.word("type", false)+"/x")...)
	s.do("POST", "/v1/streams/"+s.stream+"/publish", s.cs.word("coded", false), append(json, "Content-Encoding", s.cs.word("coding", false))...)
	s.do("POST", "/v1/streams/"+s.stream+"/publish", `{}`, append(json, "Idempotency-Key", s.cs.word("idem", false)+" é")...)
	s.do("POST", "/v1/streams/"+s.stream+"/publish", `{}`, append(json, "Idempotency-Key", s.cs.word("idem", false), "Idempotency-Key", "b")...)
	s.do("POST", "/v1/streams/"+s.stream+"/99999", `{"events":["`+s.cs.word("far", false)+`"]}`, json...)
	s.do(strings.ToUpper(s.cs.word("method", false)), "/v1/streams", "", auth...)
}

// garbles sends input that is not HTTP or stops in the middle.
func (s *caged) garbles(key string) {
	s.t.Helper()
	for _, addr := range []string{strings.TrimPrefix(s.url, "http://"), strings.TrimPrefix(s.metrics, "http://")} {
		post := "POST /v1/streams/" + s.stream + "/publish HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/json\r\n"
		for _, text := range []string{
			s.cs.word("line", false) + "\r\n\r\n",
			"GET /" + s.cs.key() + " HTTP/9.9\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: " + s.cs.word("host", false) + "\x01\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\n" + s.cs.word("field", false) + " : x\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + s.cs.key() + "\x00\r\n\r\n",
			"GET /?a=" + s.cs.word("semicolon", false) + ";b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			"GET /%zz" + s.cs.word("escape", false) + " HTTP/1.1\r\nHost: a\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nX: " + s.cs.word("long", false) + strings.Repeat("x", 64<<10) + "\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " + s.cs.word("transfer", false) + "\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: " + s.cs.word("length", false) + "\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: a\r\nExpect: " + s.cs.word("expect", false) + "\r\nConnection: close\r\n\r\n",
			post + "Transfer-Encoding: chunked\r\n\r\n" + s.cs.word("chunk", false) + "\r\n",
			post + "Content-Length: 1000\r\n\r\n" + s.cs.word("cut", false),
			post + "Content-Length: 9000000\r\n\r\n" + s.cs.word("large", false),
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + s.cs.word("frame", false),
			"\x16\x03\x01\x02\x00\x01" + s.cs.word("tls", false),
		} {
			s.raw("tcp", addr, text)
		}
	}
}

// administers sends requests to the admin socket.
func (s *caged) administers() {
	s.t.Helper()
	socket := filepath.Join(s.data, "admin.sock")
	for _, r := range []struct{ path, body string }{
		{"/" + s.cs.key(), ""}, {"/keys/" + s.cs.key() + "/revoke", ""}, {"/keys?project=" + s.cs.key(), ""},
		{"/projects", s.cs.word("admin", false)}, {"/projects", `{"name":"` + s.cs.key() + `"}`}, {"/projects", `{"` + s.cs.key() + `":1}`},
		{"/keys", `{"project":"` + s.cs.key() + `"}`}, {"/keys", `{"project":"shop","kind":"` + s.cs.key() + `"}`},
		{"/keys", `{"project":"shop","kind":"live","streams":["` + s.cs.key() + `"]}`}, {"/keys", `{"project":"shop","kind":"live","name":"` + s.cs.key() + `"}`},
	} {
		s.raw("unix", socket, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: %s\r\nContent-Length: %d\r\n\r\n%s",
			r.path, s.cs.word("cookie", false), len(r.body), r.body))
	}
	s.raw("unix", socket, s.cs.key()+"\r\n\r\n")
}
