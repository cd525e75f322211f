package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
	"weir/internal/jsonbody"
)

// findStream returns the stream whose ID is in the path.
func (v *visit) findStream() (*hub.Stream, error) {
	id, err := weir.ParseStreamID(v.r.PathValue("id"))
	if err != nil {
		return nil, weir.Errorf(weir.StreamNotFound, "stream not found")
	}
	return v.Hub.Find(v.r.Context(), id)
}

// maxTestBatch is the maximum size of a test batch in bytes. This is enough, because users type
// test batches into a text field.
const maxTestBatch = 1 << 20

// publish publishes a test batch. It applies the same rules as the API.
func (v *visit) publish() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	if s.Project == access.DemoProject {
		return weir.Errorf(weir.ProjectForbidden, "the demo stream is read-only")
	}
	body, err := io.ReadAll(http.MaxBytesReader(v.w, v.r.Body, maxTestBatch))
	if err != nil {
		return weir.Errorf(weir.PayloadTooLarge, "a test batch can be at most %d bytes", maxTestBatch)
	}
	p := &hub.Publish{Batch: weir.Batch{Events: 1, Payload: body}}
	if s.Mode == weir.Raw {
		p.Batch.ContentType = "application/octet-stream"
	} else if p.Batch.Payload, p.Batch.Events, err = jsonbody.Events(body); err != nil {
		return err
	}
	ack, err := s.Publish(v.r.Context(), p)
	if err != nil {
		return err
	}
	v.did("test batch published", fmt.Sprintf("%s %s, sequence %d", s.Name(), s.ID, ack.Seq))
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

// deleteStream requires the stream's name, typed as the page shows it. It also accepts the ID,
// because a name that consists of white space cannot be typed from the page.
func (v *visit) deleteStream() error {
	s, err := v.findStream()
	if err != nil {
		return err
	}
	page := "/dashboard/streams/" + string(s.ID) + "/delete"
	if s.Project == access.DemoProject {
		return v.sorry(page, weir.Errorf(weir.ProjectForbidden, "the demo stream cannot be deleted; disable it with --demo=false"))
	}
	if got := v.field("name"); got != string(s.ID) && !isTyped(got, s.Name()) {
		return v.wrong(page, "The text matches neither the stream's name nor its ID. Nothing was deleted.")
	}
	if err := s.Delete(v.r.Context()); err != nil {
		return v.sorry("/dashboard/streams", err)
	}
	v.did("stream deleted", s.Name()+" "+string(s.ID))
	return v.back("/dashboard/streams", "Stream "+s.Name()+" deleted.")
}

// isTyped reports whether the text is the name, typed as a page shows it.
func isTyped(text, name string) bool {
	return inOneLine(text) == inOneLine(name) || inOneLine(text) == inOneLine(string(visible([]byte(name))))
}

// inOneLine collapses white space as browsers do: it trims both ends and replaces each other run of
// white space by one space.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
