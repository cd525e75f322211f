package trials

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/contract"
)

// page subscribes to a stream with fetch. It reports each block that it receives to the test, with
// a request to the server that the page came from.
const page = `<!doctype html><script>
const report = text => fetch('/report', {method: 'POST', body: text});
(async () => {
	try {
		const answer = await fetch('%s/v1/streams/%s?cursor=0', {headers: {accept: 'text/event-stream', authorization: 'Bearer %s'}});
		await report('status ' + answer.status + ' ' + answer.headers.get('x-request-id'));
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		for (let text = '';;) {
			const {value, done} = await reader.read();
			if (done) break;
			text += value;
			for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) await report(text.slice(0, end));
		}
		await report('done');
	} catch (e) {
		await report('failed: ' + e);
	}
})();
</script>`

// A real browser follows a stream over HTTP/3. The page receives batches while the response is
// open, and a stopping server ends the response cleanly. The browser reaches the server through a
// relay that forwards only UDP, so the connection can only be HTTP/3.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := chromium(t)
	s := serve(t, t.TempDir(), "--demo=false", "--shutdown-grace", "20s")
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"browser"}`).ID
	c.Publish(stream, `["before"]`)
	relay := relayUDP(t, strings.TrimPrefix(s.secure, "https://"))

	reports := make(chan string, 100)
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/report":
			text, _ := io.ReadAll(r.Body)
			reports <- string(text)
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, page, "https://"+relay, stream, liveKey)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(pages.Close)
	log := open(t, browser, relay, pin(t, s.secure), pages.URL)
	next := func(want string) {
		t.Helper()
		select {
		case got := <-reports:
			if !strings.Contains(got, want) {
				t.Fatalf("the browser got %q, want %s\n%s", got, want, log)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no report from the browser within a minute; want %s\n%s", want, log)
		}
	}
	next("status 200 req_") // the request id shows that CORS lets the page read x-request-id
	next("retry: 1000")
	next(`"events":["before"]`)
	c.Publish(stream, `["while it listens"]`)
	next(`"events":["while it listens"]`)
	began := time.Now()
	s.stop(t)
	next("retry: ")
	next("done")
	t.Logf("the server stopped in %v with a browser connected", time.Since(began))
}

// chromium returns the path of the browser. It skips the test if there is none.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("Chromium is not installed; tools/browser installs it if it can")
	return ""
}

// open opens a page in a headless browser. The browser uses only HTTP/3 to reach the relay, and
// accepts the certificate whose public key has this hash.
func open(t *testing.T, browser, relay, pin, url string) fmt.Stringer {
	t.Helper()
	cmd := exec.Command(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--enable-quic",
		"--origin-to-force-quic-on="+relay, "--ignore-certificate-errors-spki-list="+pin, url)
	log := &safeBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 10 * time.Second
	tie(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // lets the browser stop its child processes
		select {
		case <-exited:
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-exited
		}
	})
	return log
}

// safeBuffer is a buffer that can be read while a process writes to it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// pin returns the hash of the public key in the server's certificate.
func pin(t *testing.T, url string) string {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sum := sha256.Sum256(c.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// relayUDP forwards packets between one client and an address. It returns the address of the relay.
func relayUDP(t *testing.T, to string) string {
	t.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	var client atomic.Pointer[net.Addr]
	var work sync.WaitGroup
	t.Cleanup(func() { front.Close(); back.Close(); work.Wait() })
	work.Go(func() {
		for b := make([]byte, 1<<16); ; {
			n, from, err := front.ReadFrom(b)
			if err != nil {
				return
			}
			client.Store(&from)
			back.Write(b[:n])
		}
	})
	work.Go(func() {
		for b := make([]byte, 1<<16); ; {
			n, err := back.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if to := client.Load(); err == nil && to != nil {
				front.WriteTo(b[:n], *to)
			}
		}
	})
	return front.LocalAddr().String()
}
