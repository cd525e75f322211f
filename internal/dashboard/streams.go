package dashboard

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
	"weir/internal/settings"
)

// streamRow is a stream in the list.
type streamRow struct {
	weir.Stream
	ProjectName string
	Updated     weir.Time
	Published   bool // at least one batch has ever been published
}

// streamsView is the data of a page of the stream list.
type streamsView struct {
	Streams  []streamRow
	Projects []weir.Project
	Project  weir.ProjectID // filter; empty for all
	Search   string
	Sort     string // a key of the map orders
	Found    int    // number of streams that match
	All      int    // number of streams in total
	Paging   paging
}

const streamsPage = 50

// orders are the sort orders of the list. Sorting by bytes, cursor or activity needs the state of
// every stream, which Glance returns without opening logs.
var orders = map[string]func(a, b *ranked) int{
	"created": func(a, b *ranked) int { return cmp.Compare(b.s.CreatedAt, a.s.CreatedAt) },
	"name": func(a, b *ranked) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.s.Name()), strings.ToLower(b.s.Name())), cmp.Compare(a.s.Name(), b.s.Name()))
	},
	"bytes":  func(a, b *ranked) int { return cmp.Compare(b.bytes, a.bytes) },
	"cursor": func(a, b *ranked) int { return cmp.Compare(b.cursor, a.cursor) },
	"active": func(a, b *ranked) int { return cmp.Compare(b.updated, a.updated) },
}

// ranked is a stream with the values it is sorted by.
type ranked struct {
	s       *hub.Stream
	bytes   int64
	cursor  weir.Seq
	updated weir.Time
}

// matchesStream reports whether a stream's name contains the text or its ID starts with the text.
// It ignores case. The text must be in lower case.
func matchesStream(s *hub.Stream, text string) bool {
	return text == "" || strings.Contains(strings.ToLower(s.Name()), text) || strings.HasPrefix(strings.ToLower(string(s.ID)), text)
}

func (v *visit) streams() error {
	w := streamsView{
		Projects: v.allProjects(), Project: weir.ProjectID(v.query("project")), Search: v.query("q"), Sort: v.query("sort"),
	}
	if orders[w.Sort] == nil {
		w.Sort = "created"
	}
	all := v.Hub.Streams()
	w.All = len(all)
	var list []ranked
	text := strings.ToLower(w.Search)
	look := w.Sort == "bytes" || w.Sort == "cursor" || w.Sort == "active"
	for _, s := range all {
		if w.Project != "" && s.Project != w.Project || !matchesStream(s, text) {
			continue
		}
		r := ranked{s: s}
		if look {
			o, updated, _ := s.Glance()
			r.bytes, r.cursor, r.updated = o.BytesStored, o.Cursor, updated
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Or(orders[w.Sort](&a, &b), cmp.Compare(a.s.ID, b.s.ID)) })
	w.Found = len(list)
	var from, to int
	w.Paging, from, to = pages(v.r, streamsPage, len(list))
	names := map[weir.ProjectID]string{}
	for _, p := range w.Projects {
		names[p.ID] = p.Name
	}
	for _, r := range list[from:to] {
		o, err := r.s.Object(v.r.Context())
		if known, ok := asKnown(err); ok && known.Code == weir.StreamNotFound {
			continue // the stream was deleted after the list was made
		}
		if err != nil {
			return err
		}
		cursor, err := r.s.Cursor(v.r.Context())
		if err != nil {
			cursor.UpdatedAt = o.CreatedAt
		}
		w.Streams = append(w.Streams, streamRow{o, names[r.s.Project], cursor.UpdatedAt, everPublished(&o, cursor.UpdatedAt)})
	}
	return v.page(http.StatusOK, "streams", "Streams", w)
}

// allProjects returns all projects, including that of the demo.
func (v *visit) allProjects() []weir.Project {
	list := v.Access.Projects()
	if p, ok := v.Access.Project(access.DemoProject); ok {
		list = append(list, p)
	}
	return list
}

// streamForm is the data of the form for a new stream.
type streamForm struct {
	Projects                            []weir.Project
	Project                             weir.ProjectID
	Name, Retention, MaxBytes, Mode, ID string
	Error                               string
}

func (v *visit) newStream() error {
	f := streamForm{
		Projects: v.Access.Projects(), Project: weir.ProjectID(v.query("project")), Mode: string(weir.JSON),
		Retention: "1d", MaxBytes: "256MiB",
	}
	return v.page(http.StatusOK, "stream_new", "New stream", f)
}

// parseRetention parses a time such as 7d, or a number of seconds.
func parseRetention(text string) (seconds int64, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	d, ok := settings.ParsePeriod(text)
	return int64(d / time.Second), ok
}

// inForm turns an error about the body of a create request into one about the form: fields have the
// names that the form shows.
func inForm(message string) string {
	message = strings.TrimPrefix(message, "invalid body: ")
	for member, label := range map[string]string{"name": "Name", "id": "ID", "mode": "Mode"} {
		if rest, ok := strings.CutPrefix(message, member+" "); ok {
			return label + " " + rest
		}
	}
	return message
}

// createStream creates a stream under the same rules as the API: it turns the form into the body of
// a create request.
func (v *visit) createStream() error {
	f := streamForm{
		Projects: v.Access.Projects(), Project: weir.ProjectID(v.field("project")), Name: v.field("name"), ID: v.field("id"),
		Retention: v.field("retention_seconds"), MaxBytes: v.field("max_bytes"), Mode: v.field("mode"),
	}
	again := func(status int, what string) error {
		f.Error = what
		return v.page(status, "stream_new", "New stream", f)
	}
	if _, ok := v.Access.Project(f.Project); !ok || f.Project == access.DemoProject {
		return again(http.StatusBadRequest, "Select a project.")
	}
	body := map[string]any{"name": f.Name, "mode": f.Mode}
	if f.ID != "" {
		body["id"] = f.ID
	}
	if f.Retention != "" {
		n, ok := parseRetention(f.Retention)
		if !ok {
			return again(http.StatusBadRequest, "Retention must be a time such as 90m, 24h or 7d, in whole seconds.")
		}
		if n < weir.MinRetention || n > weir.MaxRetention {
			return again(http.StatusUnprocessableEntity, "Retention must be from 1m to 30d.")
		}
		body["retention_seconds"] = n
	}
	if f.MaxBytes != "" {
		n, ok := settings.ParseSize(f.MaxBytes)
		if !ok {
			return again(http.StatusBadRequest, "Size limit must be a number of bytes, or a size such as 256MiB or 4GiB.")
		}
		if n < weir.MinMaxBytes || n > weir.MaxMaxBytes {
			return again(http.StatusBadRequest, "Size limit must be from 1MiB to 4GiB.")
		}
		body["max_bytes"] = n
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	spec, err := api.ParseSpec(text)
	if err == nil && spec.ID == access.DemoStream {
		err = weir.Errorf(weir.StreamNameTaken, "the ID %s belongs to the demo stream", spec.ID)
	}
	var made weir.Stream
	if err == nil {
		spec.Project = f.Project
		made, err = v.Hub.Create(v.r.Context(), spec)
	}
	if err != nil {
		if known, ok := asKnown(err); ok {
			return again(api.StatusOf(err), inForm(known.Message))
		}
		return err
	}
	v.did(api.StreamCreated, made.Name+" "+string(made.ID))
	return v.back("/dashboard/streams/"+string(made.ID), "Stream created.")
}
