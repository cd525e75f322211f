package dashboard

import (
	"encoding/json"
	"net/http"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// streamView is the data of a stream's page.
type streamView struct {
	hub.Standing
	Project   weir.Project
	Demo      bool
	Published bool   // at least one batch has ever been published
	JSON      string // the stream object as /v1 returns it
	Age       int64  // age of the oldest batch, in seconds
	Audience  audience
	Span      string // time span of the plots
}

// Limits of a stream's plots.
const (
	maxBatches = 100_000 // maximum number of batches to read
	plotPoints = 60      // number of points
	// plotStep is the least time between two points. With less, the plot of a stream with a batch
	// per second would jump between 0 and twice the real rate.
	plotStep = 10 * time.Second
)

// streamParts are the templates of the page that streamFigures renders again on each update. The
// method events, which is called more often, renders all of them except the last: "audience", the
// list of subscribers, takes longer to render.
var streamParts = []string{"updated", "gap-line", "gaps", "object", "audience"}

// lookAt returns the state of a stream, and calls the function visit for each of its latest
// batches, oldest first. The parameter count is the approximate number of batches to visit.
func (v *visit) lookAt(s *hub.Stream, count int, visit func(hub.Mark)) (streamView, error) {
	st, err := s.Look(v.r.Context(), count, visit)
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

// everPublished reports whether a batch was ever published to a stream. The cursor alone cannot
// tell: it is 0 both before the first batch and after a batch with sequence 0.
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
	view.Audience = v.audience(s.ID)
	view.Span = v.spanName()
	view.Demo = s.Project == access.DemoProject
	view.Project, _ = v.Access.Project(s.Project)
	return v.page(http.StatusOK, "stream", view.Object.Name, view)
}

// streamFigures returns the changing parts of a stream's page as JSON.
func (v *visit) streamFigures() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	var marks []hub.Mark
	st, err := v.lookAt(s, maxBatches, func(m hub.Mark) { marks = append(marks, m) })
	if err != nil {
		return err
	}
	st.Audience = v.audience(s.ID)
	answer, err := v.figuresOf(&st, streamParts)
	if err != nil {
		return err
	}
	answer["plots"] = v.streamPlots(s, &st.Standing, marks)
	return v.json(answer)
}

// streamPlots returns the plots of a stream. They come from the stored batches, so that they also
// show what other nodes published, and what was published before the last start. If the counts of
// this server reach back further than the batches that the stream keeps, the plots come from these
// counts instead.
func (v *visit) streamPlots(s *hub.Stream, st *hub.Standing, marks []hub.Mark) map[string][]any {
	over := v.spanName()
	back := spanOf(over)
	from := plotFrom(st, marks, v.now, back)
	list := plot(marks, from, v.now)
	if st.Cut && v.Node == "" {
		batches, size := hub.WorkOf(s)
		counted := v.pasts.samplesOf(&v.pasts.streams, v.now, over, s.CreatedAt, streamRecord(s, batches, size))
		if len(counted) > 0 && counted[0][at]-counted[0][span] < float64(from.Unix()) {
			list = counted
		}
	}
	return plotsOf(list, v.now, back, published, received)
}

// figuresOf returns the changing parts of a stream's page, without its plot. It renders the given
// templates.
func (v *visit) figuresOf(st *streamView, templates []string) (map[string]any, error) {
	parts, err := fragments("stream", st, templates)
	if err == nil {
		err = addTrouble(parts, v.troubles())
	}
	if err != nil {
		return nil, err
	}
	answer := map[string]any{
		"cursor": st.Object.Cursor, "bytes_stored": st.Object.BytesStored, "batches": st.Batches, "subscribers": st.Subscribers,
		"missing": st.Missing, "age": st.Age, "parts": parts, "published": st.Published,
	}
	if st.Oldest != nil {
		answer["oldest"], answer["newest"] = st.Oldest, st.Newest
	}
	return answer, nil
}

// plotFrom returns the start time of a plot. The parameter back is the time that the plot covers. The
// plot starts later if the stream is younger. It also starts later if some batches of that time are
// unknown, because there were more than maxBatches or some were evicted: otherwise the plot would
// show no publishes where batches are unknown.
func plotFrom(st *hub.Standing, marks []hub.Mark, now time.Time, back time.Duration) time.Time {
	from := now.Add(-back)
	if created := st.Object.CreatedAt.Std(); created.After(from) {
		from = created
	}
	if !st.Cut {
		return from
	}
	// The size limit never evicts the newest batch. So if no batch is left, the newest one was
	// older than the retention time, and nothing was published within that time.
	known := now.Add(-time.Duration(st.Object.RetentionSeconds) * time.Second)
	if len(marks) > 0 {
		known = marks[0].Time.Std()
	}
	if known.After(from) {
		return known
	}
	return from
}

// plot counts batches in intervals of equal length. The last interval ends now. If the time is
// shorter than plotStep, there is one interval.
func plot(marks []hub.Mark, from, now time.Time) []sample {
	age := now.Sub(from)
	step := max(age/plotPoints, min(age, plotStep), time.Second)
	n := max(1, int(age/step))
	list := make([]sample, n)
	for i := range list {
		list[i][at], list[i][span] = float64(now.Add(-step*time.Duration(n-1-i)).Unix()), step.Seconds()
	}
	for _, m := range marks {
		back := max(0, now.Sub(m.Time.Std())) // a batch published after now counts in the last interval
		if i := n - 1 - int(back/step); i >= 0 {
			list[i][published]++
			list[i][received] += float64(m.Size)
		}
	}
	return list
}
