package dashboard

import (
	"net/http"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
)

// overviewView is the first page.
type overviewView struct {
	Span     string // hour or day
	Status   string
	OK       bool
	Version  string
	Commit   string
	Uptime   time.Duration
	Tiles    []tile
	Store    Store
	Cluster  string
	Used     int64
	Forecast forecast
	Failed   []api.Request
	Refused  []api.Request
}

// tile is a figure that stands for itself. Scripts refresh it by its name.
type tile struct {
	Name, Label, Value, Note string
}

// problems is how many recent ones are shown of each sort.
const problems = 10

func (v *visit) overview() error { return v.page(http.StatusOK, "overview", "Overview", v.look()) }

// look is how everything stands.
func (v *visit) look() overviewView {
	status, ok := v.Health()
	w := overviewView{
		Span: v.spanName(), Status: status, OK: ok, Version: v.Version, Commit: v.Commit,
		Uptime: v.now.Sub(v.Started), Store: v.Store(), Cluster: v.Cluster(), Forecast: v.foresee(), Tiles: v.tiles(),
		Failed: v.API.Failed(problems), Refused: v.API.Refused(problems),
	}
	w.Used = w.Store.Size - w.Store.Free
	return w
}

// Remembers says since when requests are remembered.
func (w overviewView) Remembers() string {
	if w.Uptime < 24*time.Hour {
		return "since the server started"
	}
	return "in the last day"
}

func (v *visit) spanName() string {
	if v.query("span") == "day" {
		return "day"
	}
	return "hour"
}

func (v *visit) foresee() forecast { return foresee(v.figures.between(v.now, 24*time.Hour)) }

// tiles are the figures of now, and of the last hour.
func (v *visit) tiles() []tile {
	hour := v.figures.between(v.now, time.Hour)
	var now sample
	if n := len(hour); n > 0 {
		now = hour[n-1]
	}
	rate := func(c column) float64 {
		if now[span] == 0 {
			return 0
		}
		return now[c] / now[span]
	}
	stats := v.Hub.Stats()
	inHour := func(c column) string { return numberText(total(hour, c)) + " in the last hour" }
	return []tile{
		{"requests", "Requests a second", numberText(rate(requests)), inHour(requests)},
		{"published", "Batches published a second", numberText(rate(published)), inHour(published)},
		{"delivered", "Deliveries a second", numberText(rate(delivered)), inHour(delivered)},
		{"received", "Bytes in a second", bytesText(rate(received)), bytesText(total(hour, received)) + " in the last hour"},
		{"sent", "Bytes out a second", bytesText(rate(sent)), bytesText(total(hour, sent)) + " in the last hour"},
		{"subscribers", "Subscribers", numberText(v.API.Subscribers()), numberText(stats.SlowestLag) + " behind at most"},
		{"failed", "Errors in the last hour", numberText(total(hour, failed)), numberText(total(hour, refused)) + " refused"},
		{"limited", "429s in the last hour", numberText(total(hour, limited)), "requests over a rate limit"},
		{"sync", "Sync of the disk", msText(now[syncMedian]), "1 in 100 over " + msText(now[syncSlow])},
		{"streams", "Streams", numberText(stats.Streams), numberText(stats.Open) + " in use"},
	}
}

// overviewParts are what of the first page is sent again as it is when it refreshes itself.
var overviewParts = []string{"disk", "problems"}

// overviewFigures is what moves on the first page. The plots are left out when they are not asked for.
func (v *visit) overviewFigures() error {
	w := v.look()
	parts, err := fragments("overview", w, overviewParts)
	if err != nil {
		return err
	}
	answer := map[string]any{"tiles": w.Tiles, "status": w.Status, "ok": w.OK, "uptime": roughly(w.Uptime), "parts": parts}
	if v.query("span") != "none" {
		answer["plots"] = v.plots(w.Span)
	}
	return v.json(answer)
}

// requestsView is the page that looks a request up.
type requestsView struct {
	Search  string
	Error   string
	Request *api.Request
	Key     *keyRow
	Stream  string // its name
	Failed  []api.Request
	Refused []api.Request
}

// requests looks a request up by its id.
func (v *visit) requests() error {
	w := requestsView{
		Search: v.query("id"), Failed: v.API.Failed(50), Refused: v.API.Refused(50),
	}
	if access.Redacted(w.Search) != w.Search {
		w.Search, w.Error = "", "That is a key, and not a request id: keep it to yourself."
	}
	if w.Search == "" {
		return v.page(http.StatusOK, "requests", "Requests", w)
	}
	found, ok := v.API.Request(w.Search)
	if !ok {
		w.Error = "There is no such request. They are remembered for a day at most, and under load for less; a subscription appears when it is over."
		if !strings.HasPrefix(w.Search, "req_") || len(w.Search) != len("req_")+16 {
			w.Error = "That is no request id: it is req_ and 16 letters and digits, as the header field x-request-id has it."
		}
		return v.page(http.StatusOK, "requests", "Requests", w)
	}
	w.Request = &found
	if k, ok := v.Access.Key(found.KeyID); ok {
		row := v.row(k, v.keyUse())
		w.Key = &row
	}
	if s, err := v.Hub.Stream(weir.StreamID(found.Stream)); err == nil {
		w.Stream = s.Name
	}
	return v.page(http.StatusOK, "requests", "Requests", w)
}
