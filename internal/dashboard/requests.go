package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
)

// requestsView is the data of the page about requests.
type requestsView struct {
	Search  string
	Error   string
	Request *api.Request
	Key     *keyRow // key of the request; nil if the request had none
	Stream  string  // name of the request's stream; empty if the stream does not exist

	Filter requestFilter
	Log    []requestRow
	Older  string // URL of older requests; empty if there are none
	Live   string // query string of the filter, for the script that refreshes the log
	IsPast bool   // the log shows older requests and does not change
}

// choice is an option of a form.
type choice struct{ Value, Text string }

// Statuses returns the options for the response. If the filter has a status that is not among them,
// Statuses adds that status.
func (w *requestsView) Statuses() []choice {
	list := []choice{{"2", "2xx: success"}, {"4", "4xx: refused"}, {"5", "5xx: failed"}, {"slow", "a second or longer"}, {"hint", "with a hint"}}
	for _, n := range []string{"401", "403", "404", "409", "413", "429", "500", "503"} {
		list = append(list, choice{n, n})
	}
	if s := w.Filter.Status; s != "" && !slices.ContainsFunc(list, func(c choice) bool { return c.Value == s }) {
		list = append(list, choice{s, s})
	}
	return list
}

// requestFilter is what the form of the request log contains.
type requestFilter struct {
	Key, Stream, Route, Status, Span string

	Routes []string
}

// requestRow is a request as the log shows it.
type requestRow struct {
	api.Request
	Key        string // masked key and its name; empty if the key is unknown
	StreamName string // empty if the stream does not exist
}

// shownRequests is the number of requests on a page of the log.
const shownRequests = 50

// spans are the time spans that the form offers.
var spans = map[string]time.Duration{"5m": 5 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour}

// requestParts are the templates of the page that requestLog renders again on each update.
var requestParts = []string{"log"}

func (v *visit) requests() error {
	w := requestsView{Search: v.query("id")}
	if access.Redacted(w.Search) != w.Search {
		w.Search, w.Error = "", "That is an API key, not a request ID. Keep it secret."
	}
	if w.Search != "" {
		v.lookUp(&w)
	}
	if err := v.readLog(&w); err != nil {
		return err
	}
	return v.page(http.StatusOK, "requests", "Requests", &w)
}

// requestLog returns the changing part of the page as JSON.
func (v *visit) requestLog() error {
	var w requestsView
	if err := v.readLog(&w); err != nil {
		return err
	}
	parts, err := fragments("requests", &w, requestParts)
	if err == nil {
		err = addTrouble(parts, v.troubles())
	}
	if err != nil {
		return err
	}
	return v.json(map[string]any{"parts": parts})
}

// lookUp finds a request by its id.
func (v *visit) lookUp(w *requestsView) {
	found, ok := v.API.Request(w.Search)
	if !ok {
		w.Error = "Request not found. Requests are remembered for at most a day, and for less time under load. A subscription appears once it has ended."
		if !strings.HasPrefix(w.Search, "req_") || len(w.Search) != len("req_")+16 {
			w.Error = "Not a request ID. A request ID is req_ followed by 16 letters and digits, as in the x-request-id header."
		}
		return
	}
	w.Request = &found
	if k, ok := v.Access.Key(found.KeyID); ok {
		row := v.row(k, v.keyUse())
		w.Key = &row
	}
	if s, err := v.Hub.Stream(weir.StreamID(found.Stream)); err == nil {
		w.Stream = s.Name()
	}
}

// readLog fills the log and its form.
func (v *visit) readLog(w *requestsView) error {
	f := requestFilter{Key: v.query("key"), Stream: v.query("stream"), Route: v.query("route"), Status: v.query("status"), Span: v.query("span"), Routes: api.RouteNames()}
	if access.Redacted(f.Key) != f.Key {
		return weir.Errorf(weir.InvalidRequest, "Key: that is an API key, and not the ID of one")
	}
	q := api.RequestQuery{Key: f.Key, Stream: weir.StreamID(f.Stream), Route: f.Route}
	switch n, err := strconv.Atoi(f.Status); {
	case f.Status == "slow":
		q.Slow = true
	case f.Status == "hint":
		q.Hinted = true
	case f.Status != "" && (err != nil || n < 1 || n > 599):
		return weir.Errorf(weir.InvalidRequest, "Response: not a status")
	default:
		q.Status = n
	}
	if d, ok := spans[f.Span]; ok {
		q.Since = v.now.Add(-d)
	}
	before := v.query("before")
	if before != "" {
		t, err := time.Parse(time.RFC3339Nano, before)
		if err != nil {
			return weir.Errorf(weir.InvalidRequest, "before: not a time")
		}
		q.Before = t
	}
	list := v.API.Requests(q, shownRequests+1)
	for _, r := range list[:min(len(list), shownRequests)] {
		w.Log = append(w.Log, requestRow{r, v.keyText(r.KeyID), v.streamName(r.Stream)})
	}
	given := url.Values{}
	for name, value := range map[string]string{"key": f.Key, "stream": f.Stream, "route": f.Route, "status": f.Status, "span": f.Span} {
		if value != "" {
			given.Set(name, value)
		}
	}
	w.Live, w.IsPast = given.Encode(), before != ""
	if len(list) > shownRequests {
		given.Set("before", list[shownRequests-1].At.UTC().Format(time.RFC3339Nano))
		w.Older = "/dashboard/requests?" + given.Encode()
	}
	w.Filter = f
	return nil
}

// keyText returns a key as the log shows it, or an empty text if there is no such key.
func (v *visit) keyText(id string) string {
	k, _ := v.Access.Key(id)
	return strings.TrimSpace(k.Masked + " " + k.Name)
}

// streamName returns the name of a stream, or an empty text if there is no such stream.
func (v *visit) streamName(id weir.StreamID) string {
	s, err := v.Hub.Stream(id)
	if err != nil {
		return ""
	}
	return s.Name()
}
