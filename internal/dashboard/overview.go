package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"weir/internal/api"
	"weir/internal/hub"
)

// overviewView is the data of the overview page.
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
	Nodes    *Nodes // nil without a cluster
	Used     int64
	Index    int64 // memory that the index of batches takes, in bytes
	MaxIndex int64
	Forecast forecast
	Trouble  []Trouble
	Failed   []api.Request
	Refused  []api.Request
	now      time.Time
}

// tile is a single figure with a label and a note. Scripts update it by name.
type tile struct {
	Name, Label, Value, Note string
}

// problems is the maximum length of each of two lists on the overview: the recent failed requests
// and the recent refused requests.
const problems = 10

func (v *visit) overview() error { return v.page(http.StatusOK, "overview", "Overview", v.look()) }

// look collects the data of the overview page.
func (v *visit) look() overviewView {
	status, ok := v.Health()
	stats := v.Hub.Stats()
	w := overviewView{
		Span: v.spanName(), Status: status, OK: ok, Version: v.Version, Commit: v.Commit,
		Uptime: v.now.Sub(v.Started), Store: v.Store(), Cluster: v.Cluster(), Forecast: v.foresee(), Tiles: v.tiles(stats),
		Index: stats.IndexBytes, MaxIndex: stats.IndexLimit,
		Failed: v.API.Requests(api.RequestQuery{Status: 5}, problems), Refused: v.API.Requests(api.RequestQuery{Status: 4}, problems), now: v.now,
	}
	w.Used = w.Store.Size - w.Store.Free
	w.Trouble = v.troubles()
	if w.Full() {
		w.Status, w.OK = "full", false // the health check has one word, read_only, for this and for other states
	}
	if v.Nodes != nil {
		all := v.Nodes()
		w.Nodes = &all
	}
	return w
}

// High returns the number of used bytes above which the meter of the disk is yellow (level 0) or red
// (level 1). The meter of a full store is always red: the disk may have free bytes, but too few for
// another file of the journal. Browsers draw red only if the limit is above the optimum of the
// meter, which is 0.
func (w overviewView) High(level int) int64 {
	if w.Full() {
		return 1
	}
	return highOf(w.Store.Size, level)
}

// highOf returns the result of High for a disk of this size and a store that is not full.
func highOf(size int64, level int) int64 {
	return int64([]float64{diskHigh, diskVeryHigh}[level] * float64(size))
}

// Full reports whether the store has no space.
func (w overviewView) Full() bool {
	return slices.ContainsFunc(w.Trouble, func(t Trouble) bool { return t.Kind == TroubleFull })
}

// Scrubbed describes the progress of the scrub in a sentence.
func (w overviewView) Scrubbed() string {
	s := w.Store.Scrub
	text := "The scrub has not read all files since the server started."
	if !s.Finished.IsZero() {
		text = "The scrub last finished reading all files " + roughly(w.now.Sub(s.Finished)) + " ago."
	}
	if s.Total > 0 {
		text += fmt.Sprintf(" The current pass has read %d %% of them.", min(100*s.Done/s.Total, 100))
	}
	if len(s.Damaged) == 0 {
		text += " No damaged data is known."
	}
	return text
}

// Remembers says in words for how long requests have been kept in memory, which is at most a day.
func (w overviewView) Remembers() string {
	if w.Uptime < 24*time.Hour {
		return "since the server started"
	}
	return "in the last day"
}

func (v *visit) foresee() forecast { return foresee(v.figures.between(v.now, 24*time.Hour)) }

// tiles returns the current figures and those of the last hour. Rates come from the newest sample.
func (v *visit) tiles(stats hub.Stats) []tile {
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
	inHour := func(c column) string { return numberText(total(hour, c)) + " in the last hour" }
	return []tile{
		{"requests", "Requests/s", numberText(rate(requests)), inHour(requests)},
		{"published", "Batches published/s", numberText(rate(published)), inHour(published)},
		{"delivered", "Batches delivered/s", numberText(rate(delivered)), inHour(delivered)},
		{"received", "Bytes received/s", bytesText(rate(received)), bytesText(total(hour, received)) + " in the last hour"},
		{"sent", "Bytes sent/s", bytesText(rate(sent)), bytesText(total(hour, sent)) + " in the last hour"},
		{"subscribers", "Subscribers", numberText(v.API.Subscribers()), "max lag " + numberText(stats.SlowestLag)},
		{"failed", "Failed, last hour", numberText(total(hour, failed)), numberText(total(hour, refused)) + " refused"},
		{"limited", "429s, last hour", numberText(total(hour, limited)), "over a rate limit"},
		{"latency", "Time to publish, p50", known(now[publishMedian]), "p99 " + known(now[publishSlow])},
		{"delay", "Time to delivery, p50", known(now[delayMedian]), "p99 " + known(now[delaySlow])},
		{"sync", "Disk sync, p50", known(now[syncMedian]), "p99 " + known(now[syncSlow])},
		{"streams", "Streams", numberText(stats.Streams), numberText(stats.Open) + " in use"},
	}
}

// known formats milliseconds. 0 means that nothing was measured.
func known(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return msText(ms)
}

// overviewParts are the templates of the overview that overviewFigures renders again on each
// update.
var overviewParts = []string{"cluster", "disk", "problems"}

// overviewFigures returns the changing parts of the overview as JSON. With span=none it leaves out
// the plots.
func (v *visit) overviewFigures() error {
	w := v.look()
	parts, err := fragments("overview", w, overviewParts)
	if err != nil {
		return err
	}
	if err := addTrouble(parts, w.Trouble); err != nil {
		return err
	}
	answer := map[string]any{"tiles": w.Tiles, "status": w.Status, "ok": w.OK, "uptime": roughly(w.Uptime), "parts": parts}
	if v.query("span") != "none" {
		answer["plots"] = v.plots(w.Span)
	}
	return v.json(answer)
}
