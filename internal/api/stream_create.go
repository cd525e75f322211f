package api

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// streamCreate serves POST /v1/streams: it creates a stream and responds with 201 and the stream
// object. It refuses, in this order (D10, D19):
//
//   - a key without the permission to manage (403 project_forbidden)
//   - a wrong content type (415)
//   - a body of more than 64 KiB (413)
//   - an invalid body (400 invalid_request_error)
//   - a retention out of range (422)
//   - an id that the key is not allowed to use (403)
//   - an id that already exists (409 stream_name_taken)
//   - a project that has reached its limit of streams (403 stream_limit_reached)
func (c *call) streamCreate() error {
	// Two checks are needed. Before the body is read, streamCreate checks whether the key may
	// create streams at all. Afterwards it checks whether the key may create a stream with this id.
	// The first check asks about the demo stream, which no key can create: the error is
	// StreamNameTaken if and only if the key has the permission to create streams.
	if err := c.grant.May(access.CreateStream, access.DemoStream, ""); code(err) != weir.StreamNameTaken {
		return err
	}
	body, err := c.readObject()
	if err != nil {
		return err
	}
	c.hint(body, createMembers)
	spec, err := parseSpec(body)
	if err != nil {
		return err
	}
	if err := c.grant.May(access.CreateStream, spec.ID, ""); err != nil {
		return err
	}
	spec.Project = c.grant.Project()
	return c.create(spec, func(object weir.Stream, err error) error {
		if err != nil {
			return err
		}
		c.created = &object.CreatedAt
		return c.sendStream(http.StatusCreated, &object)
	})
}

// readObject reads a body that is a small JSON object. It refuses a wrong content type (415) and a body
// of more than 64 KiB (413).
func (c *call) readObject() ([]byte, error) {
	if _, err := contentType(c.r.Header, jsonType); err != nil {
		return nil, err
	}
	if c.r.ContentLength > weir.MaxCreateBody {
		return nil, errObjectTooLarge
	}
	return c.readBody(weir.MaxCreateBody, errObjectTooLarge)
}

// parseSpec parses the body of a request that creates a stream.
func parseSpec(body []byte) (hub.Spec, error) {
	spec := hub.Spec{RetentionSeconds: weir.DefaultRetention, MaxBytes: weir.DefaultMaxBytes, Mode: weir.JSON}
	change, err := parseSettings(body, func(member string, value jsontext.Value) (err error) {
		switch member {
		case "ttl_seconds":
			fits := false
			if fits, err = parseInteger(member, value, 1, weir.MaxTTL, &spec.TTLSeconds); err == nil && !fits {
				err = badBody("ttl_seconds must be from 1 to 31536000")
			}
		case "mode":
			spec.Mode, err = modeOf(value)
		case "id":
			spec.ID, err = idOf(value)
		}
		return err
	})
	if err != nil && code(err) != weir.RetentionOutOfRange {
		return spec, err
	}
	if change.Name == nil {
		return spec, badBody("name is missing; send a string of 1 to 128 characters")
	}
	return change.Apply(spec), err
}

// parseSettings parses the members whose values can be changed later by a PATCH. It passes every
// other member of the body to the function other. The error is RetentionOutOfRange only if nothing
// else is wrong with the body (D10).
func parseSettings(body []byte, other func(member string, value jsontext.Value) error) (c hub.Change, err error) {
	outOfRange := false
	err = eachMember(body, func(member string, value jsontext.Value) (err error) {
		var fits bool
		switch member {
		case "name":
			c.Name = new(string)
			*c.Name, err = nameOf(value)
		case "retention_seconds":
			c.RetentionSeconds = new(int64)
			if fits, err = parseInteger(member, value, weir.MinRetention, weir.MaxRetention, c.RetentionSeconds); !fits {
				outOfRange = true
			}
		case "max_bytes":
			c.MaxBytes = new(int64)
			if fits, err = parseInteger(member, value, weir.MinMaxBytes, weir.MaxMaxBytes, c.MaxBytes); err == nil && !fits {
				err = badBody("max_bytes must be from 1048576 to 4294967296")
			}
		default:
			err = other(member, value)
		}
		return err
	})
	if err == nil && outOfRange {
		err = weir.Errorf(weir.RetentionOutOfRange, "retention_seconds must be from 60 to 2592000")
	}
	return c, err
}

// eachMember calls the function visit for each member of a JSON object, and ends with the first
// error that visit returns. A body is at most 64 KiB, so jsontext's own check for duplicate names
// is cheap enough.
func eachMember(body []byte, visit func(member string, value jsontext.Value) error) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	if d.PeekKind() != '{' {
		return badBody("it is not a JSON object")
	}
	d.ReadToken()
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return syntaxError(err)
		}
		member := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		if err := visit(member, value); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil { // the end of the object, or a syntax error
		return syntaxError(err)
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return badBody("unexpected data after the object")
	}
	return nil
}

// syntaxError refuses a body with the message of jsontext, which names the byte offset.
func syntaxError(err error) error { return badBody(strings.TrimPrefix(err.Error(), "jsontext: ")) }

// text returns the value of a JSON string, and false if the value is not a string.
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
		return "", badBody("name must be a string of 1 to 128 characters")
	}
	return name, nil
}

func modeOf(value jsontext.Value) (weir.Mode, error) {
	if mode, ok := text(value); ok && weir.Mode(mode).Valid() {
		return weir.Mode(mode), nil
	}
	return "", badBody(`mode must be "json" or "raw"`)
}

func idOf(value jsontext.Value) (weir.StreamID, error) {
	if s, ok := text(value); ok && weir.IsID(s) {
		return weir.StreamID(s), nil
	}
	return "", badBody("id must be a string of " + weir.IDForm)
}

// parseInteger parses an integer without fraction and exponent, and reports whether the integer is
// in the range from low to high. It returns an error if the value is not such an integer. An
// integer that does not fit into an int64 is out of range; that is not an error.
func parseInteger(member string, value jsontext.Value, low, high int64, into *int64) (fits bool, err error) {
	if value.Kind() != '0' || bytes.ContainsAny(value, ".eE") {
		return false, badBody(member + " must be an integer, without fraction or exponent")
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < low || n > high { // ParseInt fails if the integer has too many digits
		return false, nil
	}
	*into = n
	return true, nil
}
