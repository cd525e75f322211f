package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
)

func (v *visit) findStream() (*hub.Stream, error) {
	id, err := weir.ParseStreamID(v.r.PathValue("id"))
	if err != nil {
		return nil, weir.Errorf(weir.StreamNotFound, "there is no such stream")
	}
	return v.Hub.Find(v.r.Context(), id)
}

// tail follows a stream for as long as the session lasts, in the frames of the interface. Nothing under /v1 accepts the
// session, so this is its own address.
func (v *visit) tail() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	if !v.seen() { // HEAD never subscribes (D30)
		v.w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	v.session.tail(1, v.now)
	defer func() { v.session.tail(-1, v.Now()) }()
	return v.API.Tail(v.w, v.r, s, v.session.ended)
}

// tailCursor is where a tail that begins now begins.
func (v *visit) tailCursor() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	o, err := s.Object(v.r.Context())
	if err != nil {
		return err
	}
	c, err := s.Cursor(v.r.Context())
	if err != nil {
		return err
	}
	return v.json(map[string]any{"cursor": c.Cursor, "published": everPublished(&o, c.UpdatedAt)})
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

// deleteStream wants the name of the stream to be typed, as the page shows it, or its id: a name may be of white space alone.
func (v *visit) deleteStream() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	page := "/dashboard/streams/" + string(s.ID) + "/delete"
	if s.Project == access.DemoProject {
		return v.sorry(page, weir.Errorf(weir.ProjectForbidden, "the demo stream cannot be deleted: switch the demo off instead (--demo=false)"))
	}
	if got := v.field("name"); got != string(s.ID) && inOneLine(got) != inOneLine(s.Name) {
		return v.wrong(page, "That is neither the name of the stream nor its id: nothing was deleted.")
	}
	if err := s.Delete(v.r.Context()); err != nil {
		return v.sorry("/dashboard/streams", err)
	}
	v.did("stream deleted", s.Name+" "+string(s.ID))
	return v.back("/dashboard/streams", "The stream "+s.Name+" was deleted.")
}

// inOneLine is a text as browsers show it: with one space wherever there is white space.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
