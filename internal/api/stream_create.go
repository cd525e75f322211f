package api

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// streamCreate answers POST /v1/streams with 201 and the stream object. It refuses, in this order (D10, D19): a key that
// may not manage (403 project_forbidden), another content type (415), more than 64 KiB (413), a body that is wrong in any
// way (400 invalid_request_error), a retention out of range (422), an id that a confined key may not create (403), an id
// that exists (409 stream_name_taken), and a project that is full (403 stream_limit_reached).
func (c *call) streamCreate() error {
	// Whether the key may create at all comes before the body, which id it may create after it. Nobody creates the demo
	// stream, so that is how to ask for the first alone.
	if err := c.grant.May(access.CreateStream, access.DemoStream, ""); code(err) != weir.StreamNameTaken {
		return err
	}
	if _, err := contentType(c.r.Header, jsonType); err != nil {
		return err
	}
	if c.r.ContentLength > weir.MaxCreateBody {
		return errCreateTooLarge
	}
	body, err := c.body(weir.MaxCreateBody, errCreateTooLarge)
	if err != nil {
		return err
	}
	spec, err := parseSpec(body)
	if err != nil {
		return err
	}
	if err := c.grant.May(access.CreateStream, spec.ID, ""); err != nil {
		return err
	}
	spec.Project = c.grant.Project()
	object, err := c.h.Hub.Create(c.r.Context(), spec)
	if err != nil {
		return err
	}
	p := buffers.Get().(*[]byte)
	b := appendStream(*p, &object)
	err = c.answer(http.StatusCreated, b)
	putBuffer(p, b)
	return err
}

// parseSpec reads the body of a create. It is small, so jsontext's own check for duplicate names does.
func parseSpec(body []byte) (hub.Spec, error) {
	spec := hub.Spec{RetentionSeconds: weir.DefaultRetention, MaxBytes: weir.DefaultMaxBytes, Mode: weir.JSON}
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	if d.PeekKind() != '{' {
		return spec, badSpec("it must be a JSON object")
	}
	d.ReadToken()
	named, retained := false, true
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return spec, badSpec(err.Error())
		}
		member := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return spec, badSpec(err.Error())
		}
		switch member {
		case "name":
			named = true
			spec.Name, err = nameOf(value)
		case "retention_seconds":
			retained, err = integer(member, value, weir.MinRetention, weir.MaxRetention, &spec.RetentionSeconds)
		case "max_bytes":
			var fits bool
			if fits, err = integer(member, value, weir.MinMaxBytes, weir.MaxMaxBytes, &spec.MaxBytes); err == nil && !fits {
				err = badSpec("max_bytes must be an integer from 1048576 to 4294967296")
			}
		case "mode":
			spec.Mode, err = modeOf(value)
		case "id":
			spec.ID, err = idOf(value)
		}
		if err != nil {
			return spec, err
		}
	}
	if _, err := d.ReadToken(); err != nil { // the end of the object, or what is wrong
		return spec, badSpec(err.Error())
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return spec, badSpec("something follows the object")
	}
	switch {
	case !named:
		return spec, badSpec("name is missing")
	case !retained: // only when nothing else is wrong
		return spec, &weir.Error{Code: weir.RetentionOutOfRange, Message: "retention_seconds must be from 60 to 2592000"}
	}
	return spec, nil
}

func badSpec(what string) error {
	return &weir.Error{Code: weir.InvalidRequest, Message: "the body of a create: " + what}
}

// text is the value of a JSON string.
func text(value jsontext.Value) (string, bool) {
	if value.Kind() != '"' {
		return "", false
	}
	b, err := jsontext.AppendUnquote(nil, value)
	return string(b), err == nil
}

func nameOf(value jsontext.Value) (string, error) {
	name, ok := text(value)
	if n := utf8.RuneCountInString(name); !ok || n < 1 || n > weir.MaxName {
		return "", badSpec("name must be a string of 1 to 128 characters")
	}
	return name, nil
}

func modeOf(value jsontext.Value) (weir.Mode, error) {
	if mode, ok := text(value); ok && weir.Mode(mode).Valid() {
		return weir.Mode(mode), nil
	}
	return "", badSpec(`mode must be "json" or "raw"`)
}

func idOf(value jsontext.Value) (weir.StreamID, error) {
	if s, ok := text(value); ok && weir.IsID(s) {
		return weir.StreamID(s), nil
	}
	return "", badSpec("id must be " + weir.IDForm)
}

// integer reads an integer in its plain spelling, and tells whether it lies between the two; one of any length may not.
func integer(member string, value jsontext.Value, least, most int64, into *int64) (fits bool, err error) {
	if value.Kind() != '0' || bytes.ContainsAny(value, ".eE") {
		return false, badSpec(member + " must be an integer")
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < least || n > most { // an error is an integer too long to hold
		return false, nil
	}
	*into = n
	return true, nil
}
