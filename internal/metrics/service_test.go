package metrics_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/metrics"
	"weir/internal/service/servicetest"
)

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", url, resp.StatusCode, err)
	}
	return string(text)
}

// A running service has a source for every metric. Without a cluster, it shows no cluster metrics.
func TestRunningServiceShowsEveryMetric(t *testing.T) {
	svc := servicetest.Start(t, servicetest.Options{Args: []string{"--metrics", "127.0.0.1:0"}, Journal: true})
	get(t, svc.HTTP+"/v1/health") // the request counter is shown only after the first request
	text := get(t, svc.Metrics+"/metrics")
	for _, name := range metrics.NamesOfOneNode() {
		if !strings.Contains(text, "\n# TYPE "+name+" ") {
			t.Errorf("/metrics does not show %s", name)
		}
	}
	if strings.Contains(text, "weir_cluster_") {
		t.Error("/metrics shows cluster metrics, but the service has no cluster")
	}
}
