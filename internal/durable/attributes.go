package durable

import (
	"context"
	"encoding/json"
	"mime"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
	"weir/internal/hub"
)

// attributes are the settings that only a stream under /ds has.
type attributes struct {
	Path      string `json:"path,omitempty"`
	Type      string `json:"type,omitempty"`      // content type, as the client sent it
	TTL       *int64 `json:"ttl,omitempty"`       // seconds
	Expires   string `json:"expires,omitempty"`   // as the client sent it
	Inherited bool   `json:"inherited,omitempty"` // TTL and Expires are those of the source of the fork
	From      string `json:"from,omitempty"`      // path of the source if this stream is a fork
	Offset    string `json:"offset,omitempty"`    // where the fork begins to differ from its source, as the client sent it
	Sub       int64  `json:"sub,omitempty"`       // how many messages or bytes of the batch at Offset the fork inherits
	Gone      bool   `json:"gone,omitempty"`      // the stream was deleted, and an empty one is kept because of its forks
	Pending   bool   `json:"pending,omitempty"`   // the first content is not completely stored yet
}

const (
	typeJSON  = "application/json"
	typeBytes = "application/octet-stream"
)

// attributesOf returns the attributes of a stream. For a stream that was created under /v1, they
// follow from its mode.
func attributesOf(s *hub.Stream) (a attributes) {
	text := s.Attributes()
	if text == "" || json.Unmarshal([]byte(text), &a) != nil {
		a = attributes{Type: typeBytes}
		if s.Mode == weir.JSON {
			a.Type = typeJSON
		}
	}
	return a
}

func (a *attributes) encode() string {
	if a.Path != "" && a.Type != "" && *a == (attributes{Path: a.Path, Type: a.Type}) {
		// Nearly all streams have only a path and a type. Encoding them with encoding/json would
		// take a tenth of the time that it takes to create a stream. AppendQuote returns an error
		// if the text is not valid UTF-8, but has then replaced the invalid bytes, as encoding/json
		// does.
		b := append(make([]byte, 0, 32+len(a.Path)+len(a.Type)), `{"path":`...)
		b, _ = jsontext.AppendQuote(b, a.Path)
		b, _ = jsontext.AppendQuote(append(b, `,"type":`...), a.Type)
		return string(append(b, '}'))
	}
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // strings, numbers and booleans can always be encoded
	}
	return string(b)
}

// isJSON reports whether the stream holds JSON messages.
func (a *attributes) isJSON() bool { return mediaType(a.Type) == typeJSON }

// isText reports whether the stream holds text, which needs no encoding in server-sent events.
func (a *attributes) isText() bool {
	return a.isJSON() || strings.HasPrefix(mediaType(a.Type), "text/")
}

// mediaType returns a content type without its parameters, in lower case.
func mediaType(s string) string {
	if s == typeJSON || s == typeBytes {
		return s
	}
	if m, _, err := mime.ParseMediaType(s); err == nil {
		return m
	}
	m, _, _ := strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(m))
}

// referenced reports whether a fork of the stream exists, or a fork of a fork.
func (h *Handler) referenced(t target) bool { return h.hasForks(t.Project, t.Path, 0) }

// deepest is the length of the longest chain of forks that hasForks follows.
const deepest = 100

func (h *Handler) hasForks(p weir.ProjectID, path string, depth int) (found bool) {
	if path == "" || depth > deepest {
		return false
	}
	h.Hub.EachWithAttributes(p, func(s *hub.Stream, text string) bool {
		if !strings.Contains(text, `"from":`) { // decoding all attributes would take long if there are many streams
			return true
		}
		a := attributesOf(s)
		if a.From == path && (!a.Gone || h.hasForks(p, a.Path, depth+1)) {
			found = true
		}
		return !found
	})
	return found
}

// collect deletes a stream. If it is the last fork of a source that was deleted before, collect
// also removes the empty stream that was kept for the source.
func (h *Handler) collect(ctx context.Context, t target) error {
	if err := t.Delete(ctx); err != nil || t.From == "" {
		return err
	}
	if s, err := h.Hub.Stream(h.idOf(t.Project, t.From)); err == nil {
		if source := (target{s, attributesOf(s)}); source.Gone && !h.referenced(source) {
			_ = h.collect(ctx, source) // the error can be ignored: the next request to the source calls collect again
		}
	}
	return nil
}

// number writes a number of the protocol, which is at most maxNumber.
func number[T int64 | uint64](n T) string {
	return strconv.FormatInt(int64(n), 10)
}
