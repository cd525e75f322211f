package dashboard

import (
	"encoding/json"
	"net/http"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// streamView is the page of a stream.
type streamView struct {
	hub.Standing
	Project   weir.Project
	Demo      bool
	Published bool   // something was, ever
	JSON      string // the object, as /v1 shows it
	Age       int64  // seconds, of the oldest batch
}

// looked is how many batches the plots of a stream rest on at most, and plotted is how many points they have.
const (
	looked    = 100_000
	plotted   = 60
	plottedIn = time.Hour
)

// streamParts are what of the page is sent again as it is when it refreshes itself.
var streamParts = []string{"updated", "gap-line", "gaps", "object"}

// lookAt looks at a stream, and visits its last batches, about most of them.
func (v *visit) lookAt(s *hub.Stream, most int, visit func(hub.Mark)) (streamView, error) {
	st, err := s.Look(v.r.Context(), most, visit)
	if err != nil {
		return streamView{}, err
	}
	object, err := json.MarshalIndent(st.Object, "", "  ")
	if err != nil {
		return streamView{}, err
	}
	view := streamView{Standing: st, JSON: string(object), Published: everPublished(&st.Object, st.Updated)}
	if st.Oldest != nil {
		view.Published = true
		view.Age = max(0, int64(v.now.Sub(st.Oldest.Time.Std()).Seconds()))
	}
	return view, nil
}

// everPublished tells whether anything was published to a stream. Its cursor is 0 before that, and also when 0 was published.
func everPublished(o *weir.Stream, updated weir.Time) bool {
	return o.Cursor > 0 || o.BytesStored > 0 || updated > o.CreatedAt
}

func (v *visit) stream() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	view, err := v.lookAt(s, 1, func(hub.Mark) {})
	if err != nil {
		return err
	}
	view.Demo = s.Project == access.DemoProject
	view.Project, _ = v.Access.Project(s.Project)
	return v.page(http.StatusOK, "stream", view.Object.Name, view)
}

// streamFigures is what moves on the page of a stream.
func (v *visit) streamFigures() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	var marks []hub.Mark
	st, err := v.lookAt(s, looked, func(m hub.Mark) { marks = append(marks, m) })
	if err != nil {
		return err
	}
	parts, err := fragments("stream", st, streamParts)
	if err != nil {
		return err
	}
	answer := map[string]any{
		"cursor": st.Object.Cursor, "bytes_stored": st.Object.BytesStored, "batches": st.Batches, "subscribers": st.Subscribers,
		"missing": st.Missing, "age": st.Age, "plot": plot(marks, plotFrom(&st.Standing, marks, v.now), v.now), "parts": parts,
	}
	if st.Oldest != nil {
		answer["oldest"], answer["newest"] = st.Oldest, st.Newest
	}
	return v.json(answer)
}

// rates is how much was published over time.
type rates struct {
	At      []int64   `json:"at"`      // Unix seconds, of the end of each
	Batches []float64 `json:"batches"` // a second
	Bytes   []float64 `json:"bytes"`   // a second
}

// plotFrom is where a plot begins: an hour ago, or where more is not known, because there were too many batches to look at or
// because older ones are gone.
func plotFrom(st *hub.Standing, marks []hub.Mark, now time.Time) time.Time {
	from := now.Add(-plottedIn)
	if !st.Cut {
		return from
	}
	known := now.Add(-time.Duration(st.Object.RetentionSeconds) * time.Second) // when all are gone, they were too old
	if len(marks) > 0 {
		known = marks[0].Time.Std()
	}
	if known.After(from) {
		return known
	}
	return from
}

// plot counts batches over spans of time of one length, the last of which ends now.
func plot(marks []hub.Mark, from, now time.Time) rates {
	step := max(now.Sub(from)/plotted, time.Second)
	n := max(1, int(now.Sub(from)/step))
	r := rates{At: make([]int64, n), Batches: make([]float64, n), Bytes: make([]float64, n)}
	for i := range n {
		r.At[i] = now.Add(-step * time.Duration(n-1-i)).Unix()
	}
	for _, m := range marks {
		back := max(0, now.Sub(m.Time.Std())) // what came since is of now
		if i := n - 1 - int(back/step); i >= 0 {
			r.Batches[i] += 1 / step.Seconds()
			r.Bytes[i] += float64(m.Size) / step.Seconds()
		}
	}
	return r
}
