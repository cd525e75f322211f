package service_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// A project floods its stream with empty batches until --max-index-memory is used up. From then on
// the server refuses publishes of this project, and accepts those of another. A restart does not
// change this. When the stream is deleted, the first project can publish again (D12).
func TestMaxIndexMemory(t *testing.T) {
	const bound = 32 << 10
	o := servicetest.Options{Journal: true, Data: t.TempDir(), Args: []string{"--max-index-memory", "32768", "--metrics", "127.0.0.1:0"}}
	s := servicetest.Start(t, o)
	other, err := s.Access.EnsureProject(context.Background(), "other")
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := s.Access.CreateKey(context.Background(), access.KeySpec{Project: other.ID, Kind: access.Live})
	if err != nil {
		t.Fatal(err)
	}
	greedy, modest := s.Key, secret.Reveal()
	large := s.NewStream(hub.Spec{Name: "large", Mode: weir.Raw})
	small := s.NewStream(hub.Spec{Name: "small", Mode: weir.Raw})
	others := s.NewStream(hub.Spec{Name: "others", Mode: weir.Raw, Project: other.ID})
	ask := func(method, key string, id weir.StreamID, path string) (*http.Response, string) {
		t.Helper()
		header := http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/octet-stream"}}
		return request(t, method, s.HTTP+"/v1/streams/"+string(id)+path, "", header)
	}
	want := func(status int, method, key string, id weir.StreamID, path string) {
		t.Helper()
		if resp, body := ask(method, key, id, path); resp.StatusCode != status {
			t.Errorf("%s %s: %d %s, want %d", method, path, resp.StatusCode, body, status)
		}
	}

	want(202, "POST", greedy, small, "/1")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 100_000 {
				if resp, _ := ask("POST", greedy, large, "/publish"); resp.StatusCode != 202 {
					return
				}
			}
			t.Error("the flood was never refused")
		})
	}
	all.Wait()
	refused, body := ask("POST", greedy, small, "/2")
	if refused.StatusCode != 503 || refused.Header.Get("Retry-After") == "" || !strings.Contains(body, `"storage_unavailable"`) ||
		!strings.Contains(body, "memory") {
		t.Errorf("got %d, retry-after %q, %s", refused.StatusCode, refused.Header.Get("Retry-After"), body)
	}
	for range 20 {
		want(202, "POST", modest, others, "/publish")
	}
	want(200, "POST", greedy, small, "/1") // the batch is stored already, and a duplicate is not refused
	want(200, "GET", greedy, large, "/batches/1")
	if !strings.Contains(s.Log.String(), "refused publishes of a project") {
		t.Errorf("the log does not say that publishes were refused: %s", s.Log)
	}
	_, metrics := request(t, "GET", s.Metrics+"/metrics", "", nil)
	if !strings.Contains(metrics, "\nweir_index_memory_limit_bytes 32768\n") || !strings.Contains(metrics, "\nweir_index_memory_bytes ") {
		t.Error("the metrics lack the use or the limit")
	}

	s.Stop()
	used := s.Hub.Stats().IndexBytes
	if used <= bound {
		t.Errorf("%d bytes are in use after the flood, want more than %d", used, bound)
	}
	s = servicetest.Start(t, o)
	if again := s.Hub.Stats().IndexBytes; again != used {
		t.Errorf("%d bytes are in use after a restart, want %d as before", again, used)
	}
	want(503, "POST", greedy, large, "/publish")
	want(202, "POST", modest, others, "/publish")
	want(204, "DELETE", greedy, large, "")
	want(202, "POST", greedy, small, "/2")
	want(202, "POST", greedy, small, "/publish")
}
