package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
)

// streamView is the page of a stream.
type streamView struct {
	hub.Standing
	Project weir.Project
	Demo    bool
	JSON    string // the object, as /v1 shows it
	Age     int64  // seconds, of the oldest batch
}

// looked is how many batches the plots of a stream rest on at most, and plotted is how many points they have.
const (
	looked    = 100_000
	plotted   = 60
	plottedIn = time.Hour
)

func (v *visit) findStream() (*hub.Stream, error) {
	id, err := weir.ParseStreamID(v.r.PathValue("id"))
	if err != nil {
		return nil, weir.Errorf(weir.StreamNotFound, "there is no such stream")
	}
	return v.Hub.Find(v.r.Context(), id)
}

func (v *visit) stream() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	st, err := s.Look(v.r.Context(), 1, func(hub.Mark) {})
	if err != nil {
		return err
	}
	view := streamView{Standing: st, Demo: s.Project == access.DemoProject}
	view.Project, _ = v.Access.Project(s.Project)
	object, err := json.MarshalIndent(st.Object, "", "  ")
	if err != nil {
		return err
	}
	view.JSON = string(object)
	if st.Oldest != nil {
		view.Age = age(st.Oldest.Time, v.now)
	}
	return v.page(http.StatusOK, "stream", st.Object.Name, view)
}

func age(t weir.Time, now time.Time) int64 { return max(0, int64(now.Sub(t.Std()).Seconds())) }

// streamFigures is what moves on the page of a stream.
func (v *visit) streamFigures() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	var marks []hub.Mark
	st, err := s.Look(v.r.Context(), looked, func(m hub.Mark) { marks = append(marks, m) })
	if err != nil {
		return err
	}
	answer := map[string]any{
		"cursor": st.Object.Cursor, "bytes_stored": st.Object.BytesStored, "max_bytes": st.Object.MaxBytes, "batches": st.Batches,
		"subscribers": st.Subscribers, "missing": st.Missing, "updated_at": st.Updated, "plot": plot(marks, v.now),
		"retention_seconds": st.Object.RetentionSeconds, "age": 0,
	}
	if st.Oldest != nil {
		answer["oldest"], answer["newest"] = st.Oldest, st.Newest
		answer["age"] = age(st.Oldest.Time, v.now)
	}
	return v.json(answer)
}

// rates is how much was published over time.
type rates struct {
	At      []int64   `json:"at"`      // Unix seconds, of the end of each
	Batches []float64 `json:"batches"` // a second
	Bytes   []float64 `json:"bytes"`   // a second
}

// plot counts batches over the last hour, or over as much of it as they reach back.
func plot(marks []hub.Mark, now time.Time) rates {
	from := now.Add(-plottedIn)
	if len(marks) >= looked {
		if first := marks[0].Time.Std(); first.After(from) {
			from = first
		}
	}
	step := max(now.Sub(from)/plotted, time.Second)
	n := int(now.Sub(from)/step) + 1
	r := rates{At: make([]int64, n), Batches: make([]float64, n), Bytes: make([]float64, n)}
	for i := range n {
		r.At[i] = from.Add(step * time.Duration(i+1)).Unix()
	}
	for _, m := range marks {
		if i := int(m.Time.Std().Sub(from) / step); m.Time.Std().After(from) && i < n {
			r.Batches[i] += 1 / step.Seconds()
			r.Bytes[i] += float64(m.Size) / step.Seconds()
		}
	}
	return r
}

// tail follows a stream for as long as the session lasts, in the frames of the interface. Nothing under /v1 accepts the
// session, so this is its own address.
func (v *visit) tail() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	v.session.tail(1, v.now)
	defer func() { v.session.tail(-1, v.Now()) }()
	return v.API.Tail(v.w, v.r, s, v.session.ended)
}

// maxTestBatch is how large a batch may be that is published here: it comes out of a text field.
const maxTestBatch = 1 << 20

// publish publishes a test batch, under the rules of the interface.
func (v *visit) publish() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	if s.Project == access.DemoProject {
		return weir.Errorf(weir.ProjectForbidden, "the demo stream can only be read")
	}
	body, err := io.ReadAll(http.MaxBytesReader(v.w, v.r.Body, maxTestBatch))
	if err != nil {
		return weir.Errorf(weir.PayloadTooLarge, "a test batch has %d bytes at most", maxTestBatch)
	}
	p := &hub.Publish{Batch: weir.Batch{Events: 1, Payload: body}}
	if s.Mode == weir.Raw {
		p.Batch.ContentType = "application/octet-stream"
	} else if p.Batch.Payload, p.Batch.Events, err = api.ParseEvents(body); err != nil {
		return err
	}
	ack, err := s.Publish(v.r.Context(), p)
	if err != nil {
		return err
	}
	v.did("test batch published", fmt.Sprintf("%s %s, sequence %d", s.Name, s.ID, ack.Seq))
	return v.json(ack)
}

func (v *visit) confirmDelete() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	st, err := s.Look(v.r.Context(), 1, func(hub.Mark) {})
	if err != nil {
		return err
	}
	return v.page(http.StatusOK, "stream_delete", "Delete a stream", st)
}

// deleteStream wants the name of the stream to be typed.
func (v *visit) deleteStream() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	page := "/dashboard/streams/" + string(s.ID) + "/delete"
	if s.Project == access.DemoProject {
		return v.sorry(page, weir.Errorf(weir.ProjectForbidden, "the demo stream cannot be deleted: switch the demo off instead (--demo=false)"))
	}
	if got := v.r.PostForm.Get("name"); got != s.Name && v.field("name") != s.Name {
		v.session.say(true, "That is not the name of the stream: nothing was deleted.")
		return v.back(page, "")
	}
	if err := s.Delete(v.r.Context()); err != nil {
		return v.sorry("/dashboard/streams", err)
	}
	v.did("stream deleted", s.Name+" "+string(s.ID))
	return v.back("/dashboard/streams", "The stream "+s.Name+" was deleted.")
}
