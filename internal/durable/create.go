package durable

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
)

// wanted is what a PUT asks for.
type wanted struct {
	attributes
	typed bool     // the request has a Content-Type
	ends  bool     // the request closes the stream
	pos   weir.Seq // the position that Offset names, if Offset is not empty
}

// create serves PUT: it creates a stream, or confirms that a stream with the same configuration
// exists. The body is the first content of a new stream.
func (c *call) create() error {
	w, err := c.wants()
	if err != nil {
		return err
	}
	body, err := c.content()
	if err != nil {
		return err
	}
	if err := c.Grant().May(access.CreateStream, c.id, ""); err != nil {
		return err
	}
	s, err := c.h.Hub.Find(c.r.Context(), c.id)
	if !c.Waits() && (err == nil || w.From != "" || w.ends) {
		return c.Wait(c.answer) // answering needs the log of a stream, and opening it may take time
	}
	if err == nil {
		c.found = true
		return c.confirm(target{s, attributesOf(s)}, w)
	}
	var from *target
	if w.From != "" {
		source, ok, err := c.source(w)
		if !ok {
			return err
		}
		from = &source
	}
	return c.make(w, from, body)
}

// wants parses the header fields of a PUT.
func (c *call) wants() (w wanted, err error) {
	h := c.r.Header
	w.Path, w.Type, w.ends = c.path, h.Get("Content-Type"), isTrue(h.Get("Stream-Closed"))
	w.typed = w.Type != ""
	ttl, expires := h.Get("Stream-TTL"), h.Get("Stream-Expires-At")
	if ttl != "" && expires != "" {
		return w, weir.Errorf(weir.InvalidRequest, "send Stream-TTL or Stream-Expires-At, not both")
	}
	if ttl != "" {
		n, ok := natural(ttl)
		if !ok {
			return w, weir.Errorf(weir.InvalidRequest, "invalid Stream-TTL: send an integer number of seconds, without sign and leading zeros")
		}
		seconds := int64(n)
		w.TTL = &seconds
	}
	if expires != "" {
		if _, err := time.Parse(time.RFC3339, expires); err != nil {
			return w, weir.Errorf(weir.InvalidRequest, "invalid Stream-Expires-At: send a time such as 2026-11-15T08:00:00Z")
		}
		w.Expires = expires
	}
	w.Offset = h.Get("Stream-Fork-Offset")
	if from := h.Get("Stream-Forked-From"); from != "" {
		w.From = sourcePath(from)
	}
	sub, some := h["Stream-Fork-Sub-Offset"]
	if w.From == "" && (w.Offset != "" || some) {
		return w, weir.Errorf(weir.InvalidRequest, "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
	}
	if w.Offset != "" {
		var ok bool
		if w.pos, ok = parseOffset(w.Offset); !ok {
			return w, weir.Errorf(weir.InvalidRequest, "invalid Stream-Fork-Offset: send an offset that this server has sent")
		}
	}
	if some {
		n, ok := natural(strings.TrimSpace(sub[0]))
		if !ok || len(sub) > 1 || n > 0 && w.Offset == "" {
			return w, weir.Errorf(weir.InvalidRequest, "invalid Stream-Fork-Sub-Offset: send one integer, together with Stream-Fork-Offset")
		}
		w.Sub = int64(n)
	}
	return w, nil
}

// sourcePath returns the path of the source of a fork. The client may send it with or without
// Prefix.
func sourcePath(s string) string {
	if u, err := url.Parse(s); err == nil {
		s = u.Path
	}
	if rest, ok := strings.CutPrefix(s, Prefix); ok {
		return rest
	}
	return strings.TrimPrefix(s, "/")
}

// confirm answers a PUT to a stream that exists.
func (c *call) confirm(t target, w wanted) error {
	if t.Project != c.Grant().Project() {
		return weir.Errorf(weir.ProjectForbidden, "the stream belongs to a different project than this key")
	}
	switch {
	case t.Gone && !c.h.referenced(t):
		_ = c.h.collect(c.r.Context(), t) // the error can be ignored: when the client retries, confirm calls collect again
		return weir.Errorf(weir.Overloaded, "the stream was being deleted; retry")
	case t.Pending:
		return c.unfinished(t)
	}
	_, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	if t.Gone || e.Ended != w.ends || !t.matches(w) {
		return c.Refuse(http.StatusConflict, weir.StreamNameTaken, "a stream with another configuration exists under this path")
	}
	c.describe(e)
	return c.Send(http.StatusOK, t.Type, nil)
}

// unfinished answers a PUT to a stream whose first content is not complete. If the stream is
// abandoned, unfinished deletes it, so that a retry creates it again.
func (c *call) unfinished(t target) error {
	cursor, err := t.Cursor(c.r.Context())
	if err != nil {
		return err
	}
	if _, filling := c.h.filling.Load(t.ID); filling || since(cursor.UpdatedAt.Std()) <= abandoned {
		return errUnfinished
	}
	if err := t.Delete(c.r.Context()); err != nil {
		return err
	}
	return weir.Errorf(weir.Overloaded, "an unfinished stream was deleted; retry")
}

var errUnfinished = &weir.Error{Code: weir.Overloaded, Message: "the stream is still being created; retry"}

// abandoned is how long a stream whose first content is not complete may go without a new batch.
// After that time the stream counts as abandoned: the server that was storing the content has
// probably stopped. As long as this process is storing the content, the stream is never abandoned.
const abandoned = time.Minute

var since = time.Since // tests replace it

// matches reports whether a stream has the configuration that a PUT asks for.
func (a *attributes) matches(w wanted) bool {
	if w.typed && mediaType(w.Type) != mediaType(a.Type) || w.From != a.From || w.Offset != a.Offset || w.Sub != a.Sub {
		return false
	}
	if a.Inherited {
		return w.TTL == nil && w.Expires == ""
	}
	if (w.TTL == nil) != (a.TTL == nil) || w.TTL != nil && *w.TTL != *a.TTL || (w.Expires == "") != (a.Expires == "") {
		return false
	}
	return w.Expires == a.Expires || timeOf(w.Expires) == timeOf(a.Expires)
}

func timeOf(s string) weir.Time {
	if s == "" {
		return 0
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0
	}
	return weir.TimeOf(t)
}

// make creates a stream. A stream with content is pending until the content is complete, so that
// after a crash clients never see a stream with half of its content.
func (c *call) make(w wanted, from *target, body []byte) error {
	a := w.attributes
	if from != nil {
		if !w.typed {
			a.Type = from.Type
		}
		if a.TTL == nil && a.Expires == "" && (from.TTL != nil || from.Expires != "") {
			a.TTL, a.Expires, a.Inherited = from.TTL, from.Expires, true
		}
	} else if !w.typed {
		a.Type = typeBytes
	}
	a.Pending = from != nil || len(body) > 0 || w.ends
	spec := hub.Spec{
		ID: c.id, Project: c.Grant().Project(), Name: nameOf(c.path), RetentionSeconds: weir.MaxRetention, MaxBytes: weir.MaxMaxBytes,
		Mode: weir.Raw, Attributes: a.encode(), ExpiresAt: timeOf(a.Expires),
	}
	if a.isJSON() {
		spec.Mode = weir.JSON
	}
	if a.TTL != nil {
		if spec.TTLSeconds = *a.TTL; spec.TTLSeconds == 0 {
			spec.ExpiresAt = weir.TimeOf(c.h.Now())
		}
	}
	first, err := firstContent(a, body)
	if err != nil {
		return err
	}
	if first != nil {
		// The call above may have overwritten the memory of the body. If the request is served
		// again (see answer), the payload takes the place of the body.
		c.body = first.Batch.Payload
	}
	if spec.ExpiresAt > 0 && spec.ExpiresAt <= weir.TimeOf(c.h.Now()) {
		return c.created(a.Type, hub.Extent{}) // the stream has already expired, so it is not stored
	}
	if !a.Pending { // the stream is empty, and its log need not be opened
		return c.Create(spec, func(err error) error {
			if err != nil {
				return c.notCreated(err)
			}
			return c.created(a.Type, hub.Extent{})
		})
	}
	return c.makeFilled(&spec, a, w, from, first)
}

// makeFilled creates a stream with content.
func (c *call) makeFilled(spec *hub.Spec, a attributes, w wanted, from *target, first *hub.Publish) error {
	if _, filling := c.h.filling.LoadOrStore(c.id, nil); filling {
		return errUnfinished
	}
	defer c.h.filling.Delete(c.id)
	ctx := context.WithoutCancel(c.r.Context())
	if _, err := c.h.Hub.Create(ctx, *spec); err != nil {
		return c.notCreated(err)
	}
	s, err := c.h.Hub.Find(ctx, c.id)
	if err != nil {
		return err
	}
	t := target{s, a}
	if err := c.fill(ctx, &t, w, from, first); err != nil {
		_ = t.Delete(ctx) // so that a retry can create the stream again
		return err
	}
	c.Note(api.StreamCreated, spec.Name+" "+string(c.id))
	_, e, err := t.Bounds(ctx)
	if err != nil {
		return err
	}
	return c.created(t.Type, e)
}

// notCreated answers a PUT whose stream the hub could not create.
func (c *call) notCreated(err error) error {
	var known *weir.Error
	if errors.As(err, &known) && known.Code == weir.StreamNameTaken {
		return c.Refuse(http.StatusConflict, weir.StreamNameTaken, "a stream is being created under this path")
	}
	return err
}

// created answers a PUT that has created a stream.
func (c *call) created(contentType string, e hub.Extent) error {
	c.describe(e)
	c.Set("Location", "http://"+c.r.Host+c.r.URL.EscapedPath())
	if c.r.TLS != nil {
		c.Set("Location", "https://"+c.r.Host+c.r.URL.EscapedPath())
	}
	return c.Send(http.StatusCreated, contentType, nil)
}

// firstContent returns the hub.Publish that stores the body of a PUT, or nil if there is nothing to
// store.
func firstContent(a attributes, body []byte) (*hub.Publish, error) {
	if len(body) == 0 {
		return nil, nil
	}
	t := target{attributes: a}
	p, err := t.publish(body)
	if errors.Is(err, errNoMessage) { // an empty array is a valid first content
		return nil, nil
	}
	return p, err
}

// fill stores the first content of a stream: the batches that a fork inherits, the body of the PUT,
// and the end if the PUT closes the stream.
func (c *call) fill(ctx context.Context, t *target, w wanted, from *target, first *hub.Publish) error {
	if from != nil {
		if err := t.inherit(ctx, w, from); err != nil {
			return err
		}
	}
	if first != nil {
		first.Ends = w.ends
		if _, err := t.Publish(ctx, first); err != nil {
			return err
		}
	} else if w.ends {
		if _, err := t.Close(ctx); err != nil {
			return err
		}
	}
	t.Pending = false
	return t.SetAttributes(ctx, func(string) (string, error) { return t.encode(), nil })
}

// nameOf returns the name of a stream: its path, or the end of a path that is too long for a name.
func nameOf(path string) string {
	path = strings.ToValidUTF8(path, "?")
	if len(path) <= weir.MaxName { // it has no more characters than bytes
		return path
	}
	name := []rune(path)
	return string(name[max(0, len(name)-weir.MaxName):])
}
