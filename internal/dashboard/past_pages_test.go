package dashboard_test

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/dashboard"
	"weir/internal/hub"
)

// countOf returns the sum of the rates in a column of plots.
func (b *browser) countOf(path, column string) float64 {
	b.svc.t.Helper()
	var f struct{ Plots map[string][]*float64 }
	b.svc.must(json.Unmarshal([]byte(b.see(path)), &f))
	rates, sum := f.Plots[column], 0.0
	if len(rates) != len(f.Plots["at"]) || len(f.Plots["range"]) != 2 {
		b.svc.t.Fatalf("%s: %d points of %s, %d of the time, range %v", path, len(rates), column, len(f.Plots["at"]), f.Plots["range"])
	}
	for _, rate := range rates {
		if rate != nil {
			sum += *rate
		}
	}
	return sum
}

// The page of a key has plots of its requests, refusals, batches and bytes. A key that did nothing
// has plots too.
func TestPlotsOfAKey(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	page := "/dashboard/keys/" + svc.keyID
	for _, want := range []string{`data-plot="requests,refused"`, `data-plot="published"`, `data-plot="received"`} {
		if text := b.see(page); !strings.Contains(text, want) {
			t.Errorf("the page of the key lacks %s", want)
		}
	}
	for range 6 {
		svc.v1("POST", "/v1/streams/"+string(svc.stream)+"/publish", svc.key, `{"events":[1]}`)
	}
	for range 3 {
		svc.v1("POST", "/v1/streams/"+string(svc.stream)+"/publish", svc.key, `{`)
	}
	svc.clock.advance(dashboard.CoarseEvery)
	for _, ticked := range []bool{false, true} {
		if ticked {
			dashboard.Tick(svc.Dashboard, context.Background())
		}
		for column, want := range map[string]float64{"requests": 9, "refused": 3, "published": 6, "received": 6*14 + 3} {
			got := b.countOf(page+"/figures", column) * dashboard.CoarseEvery.Seconds()
			if math.Abs(got-want) > want/2 { // the point covers the minute, and the time that the test took
				t.Errorf("ticked: %v, %s: %v, want about %v", ticked, column, got, want)
			}
		}
	}
	if got := b.countOf(page+"/figures?span=day", "published"); got == 0 {
		t.Error("the plot of the day has no batches")
	}
	if status, _, _ := b.get("/dashboard/keys/none/figures"); status != http.StatusNotFound {
		t.Errorf("figures of a key that does not exist: %d", status)
	}
}

// The plot of a stream shows batches that were evicted since they were published.
func TestPlotOfEvictedBatches(t *testing.T) {
	svc := startService(t)
	b := svc.signedIn()
	page := "/dashboard/streams/" + string(svc.stream) + "/figures"
	publish := func(n int) {
		s, err := svc.Hub.Stream(svc.stream)
		svc.must(err)
		for range n {
			_, err = s.Publish(context.Background(), &hub.Publish{Batch: weir.Batch{Events: 1, Payload: []byte(`["` + strings.Repeat("x", weir.MinMaxBytes/2) + `"]`)}})
			svc.must(err)
		}
	}
	publish(10) // the stream has room for one of them
	svc.clock.advance(dashboard.CoarseEvery)
	dashboard.Tick(svc.Dashboard, context.Background())
	svc.clock.advance(5 * time.Second)
	publish(1)
	for _, span := range []string{"hour", "day"} {
		if got := b.countOf(page+"?span="+span, "published") * dashboard.CoarseEvery.Seconds(); got < 6 || got > 11.5 {
			t.Errorf("the plot of the %s shows about %v batches, want 10", span, got)
		}
	}
}
