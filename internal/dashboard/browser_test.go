package dashboard

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/hub"
)

// TestBrowser drives the dashboard in Chromium through the steps in testdata/browser/run.mjs.
// Screenshots of every page go to bin/screenshots. If PICTURES names a directory, the pictures of
// the manual are written there.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("the browser test is slow")
	}
	browser, node := tools(t)
	h := newHouse(t)
	raw := h.rawStream()
	// The service, plus a URL with which the script moves the clock forward.
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/test/advance":
			h.clock.advance(lastsFor)
			h.d.sessions.sweep()
		case Serves(r.URL.Path):
			h.d.ServeHTTP(w, r)
		default:
			h.api.ServeHTTP(w, r)
		}
	}))
	defer front.Close()
	defer h.hub.StopSubscriptions()
	h.d.BaseURL = front.URL
	h.pastDay()
	shots, err := filepath.Abs("../../bin/screenshots")
	h.must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "run.mjs")
	cmd.Dir = "testdata/browser"
	cmd.Env = append(os.Environ(), "URL="+front.URL, "STREAM="+string(h.stream), "RAW="+string(raw), "KEY="+h.key, "PASSWORD="+password,
		"SHOTS="+shots, "CHROMIUM="+browser)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("browser script failed: %v", err)
	}
	if pictures := os.Getenv("PICTURES"); pictures != "" && err == nil {
		h.must(shrink(shots, pictures))
	}
	if log := h.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "panic") {
		t.Errorf("the log contains errors:\n%s", log)
	}
}

// tools finds Chromium and Node, and skips the test if something is missing.
func tools(t *testing.T) (browser, node string) {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	node, err := exec.LookPath("node")
	switch _, missing := os.Stat("testdata/browser/node_modules/playwright-core"); {
	case browser == "":
		t.Skip("Chromium is not installed; run tools/browser to install it")
	case err != nil:
		t.Skip("Node is not installed; it drives the browser")
	case missing != nil:
		t.Skip("playwright-core is not installed; run tools/browser to install it")
	}
	return browser, node
}

// rawStream creates a raw stream whose first batches were evicted.
func (h *house) rawStream() weir.StreamID {
	ctx := context.Background()
	o, err := h.hub.Create(ctx, hub.Spec{Project: h.project.ID, Name: "sensor", RetentionSeconds: 3600, MaxBytes: weir.MinMaxBytes, Mode: weir.Raw})
	h.must(err)
	s, err := h.hub.Stream(o.ID)
	h.must(err)
	for range 8 {
		payload := append([]byte{0xff, 0, 'h', 'i', '<', 'b', '>'}, make([]byte, 300<<10)...)
		_, err := s.Publish(ctx, &hub.Publish{Batch: weir.Batch{Events: 1, ContentType: "application/octet-stream", Payload: payload}})
		h.must(err)
	}
	return o.ID
}

// pastDay fills the plots with a day of made-up figures, and keeps real samples from being added.
func (h *house) pastDay() {
	f := &h.d.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	now := h.clock.now()
	f.coarse.last.taken, f.fine.last.taken = now.Add(48*time.Hour), now.Add(48*time.Hour)
	for i := range 24 * 60 {
		var s sample
		wave := (1 + math.Sin(float64(i)/110)) / 2
		s[at], s[span] = float64(now.Add(-time.Duration(24*60-i)*time.Minute).Unix()), 60
		s[requests], s[published], s[delivered] = 60*(900+400*wave), 60*(800+350*wave), 60*(2400+900*wave)
		s[received], s[sent] = s[published]*1100, s[delivered]*1200
		s[refused], s[limited], s[subscribers] = 60*12*wave, 60*5*max(0, wave-.8), math.Round(40+25*wave)
		s[syncMedian], s[syncSlow] = 1.2+wave, 4+3*wave
		s[diskUsed], s[diskFree] = 40*(1<<30)+float64(i)*3e6, 60*(1<<30)-float64(i)*3e6
		f.coarse.add(s)
	}
}
