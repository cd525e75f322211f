package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// DocumentKind is the part before the slash in the keys of stream documents. A report that counts
// documents by kind shows the streams under this name.
const DocumentKind = "stream"

// documents is the prefix of the key of every stream document. The stream's id follows the prefix.
const documents = DocumentKind + "/"

// documentKey returns the key of the document that describes the stream with this id.
func documentKey(id weir.StreamID) string { return documents + string(id) }

// StreamOf returns the id of the stream that the document under key describes. The second result is
// false if key belongs to another kind of document. StreamOf looks only at the key. It does not
// check that the document exists or that its value can be read.
func StreamOf(key string) (weir.StreamID, bool) {
	id, ok := strings.CutPrefix(key, documents)
	return weir.StreamID(id), ok
}

// document is the stored form of a stream's settings. The stream's id is in the key.
type document struct {
	Project          weir.ProjectID `json:"project"`
	Name             string         `json:"name"`
	CreatedAt        int64          `json:"created_at"` // Unix milliseconds
	RetentionSeconds int64          `json:"retention_seconds"`
	MaxBytes         int64          `json:"max_bytes"`
	Mode             weir.Mode      `json:"mode"`
	TTLSeconds       int64          `json:"ttl_seconds,omitempty"`
	ExpiresAt        int64          `json:"expires_at,omitempty"` // Unix milliseconds
	UsedAt           int64          `json:"used_at,omitempty"`    // Unix milliseconds; see lifetime.go
	Attributes       string         `json:"attributes,omitempty"`
}

// check returns an error if the document does not describe a valid stream.
func (v *document) check() error {
	switch {
	case v.Project == "":
		return errors.New("project is missing")
	case !v.Mode.Valid():
		return fmt.Errorf("mode %q is neither %q nor %q", v.Mode, weir.JSON, weir.Raw)
	case v.MaxBytes <= 0:
		return fmt.Errorf("max_bytes %d is not positive", v.MaxBytes)
	case v.RetentionSeconds <= 0:
		return fmt.Errorf("retention_seconds %d is not positive", v.RetentionSeconds)
	case v.TTLSeconds < 0:
		return fmt.Errorf("ttl_seconds %d is negative", v.TTLSeconds)
	}
	return nil
}

// writeDocument encodes a stream's settings for the store. It refuses the settings that
// readDocument refuses. If they were stored, the server could not start again.
func writeDocument(s *Spec, created weir.Time) ([]byte, error) {
	v := document{
		Project: s.Project, Name: s.Name, CreatedAt: int64(created), RetentionSeconds: s.RetentionSeconds, MaxBytes: s.MaxBytes, Mode: s.Mode,
		TTLSeconds: s.TTLSeconds, ExpiresAt: int64(s.ExpiresAt), UsedAt: int64(s.usedAt), Attributes: s.Attributes,
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("create stream %s: %w", s.ID, err)
	}
	return v.encode(), nil
}

// encode returns the document as JSON. It does without encoding/json, which would be the most
// expensive step in the creation of a stream.
func (v *document) encode() []byte {
	b := make([]byte, 0, 256)
	text := func(member, value string) {
		b = append(append(append(b, `,"`...), member...), `":`...)
		b, _ = jsontext.AppendQuote(b, value) // the error says that the value is not valid UTF-8, and was corrected
	}
	number := func(member string, value int64) {
		b = append(append(append(b, `,"`...), member...), `":`...)
		b = strconv.AppendInt(b, value, 10)
	}
	text("project", string(v.Project))
	text("name", v.Name)
	number("created_at", v.CreatedAt)
	number("retention_seconds", v.RetentionSeconds)
	number("max_bytes", v.MaxBytes)
	text("mode", string(v.Mode))
	if v.TTLSeconds != 0 {
		number("ttl_seconds", v.TTLSeconds)
	}
	if v.ExpiresAt != 0 {
		number("expires_at", v.ExpiresAt)
	}
	if v.UsedAt != 0 {
		number("used_at", v.UsedAt)
	}
	if v.Attributes != "" {
		text("attributes", v.Attributes)
	}
	b[0] = '{' // in place of the comma
	return append(b, '}')
}

// readDocument decodes and validates a stream document. Every reader of stream documents uses it
// (start, changes by other nodes, check and repair), so all of them accept the same documents.
func readDocument(d engine.Document) (s Spec, created weir.Time, err error) {
	id, ok := StreamOf(d.Key)
	if !ok {
		return Spec{}, 0, errors.New("not a stream document: its key belongs to another kind")
	}
	v, ok := scanDocument(d.Value)
	if !ok {
		v = document{}
		if err := json.Unmarshal(d.Value, &v); err != nil {
			return Spec{}, 0, fmt.Errorf("not a stream document: %w", err)
		}
	}
	if err := v.check(); err != nil {
		return Spec{}, 0, fmt.Errorf("not a stream document: %w", err)
	}
	return Spec{
		ID: id, Project: v.Project, Name: v.Name,
		RetentionSeconds: v.RetentionSeconds, MaxBytes: v.MaxBytes, Mode: v.Mode,
		TTLSeconds: v.TTLSeconds, ExpiresAt: weir.Time(v.ExpiresAt), usedAt: weir.Time(v.UsedAt), Attributes: v.Attributes,
	}, weir.Time(v.CreatedAt), nil
}

// scanDocument reads a document in the form in which writeDocument writes most of them: the members
// have their usual order, none of them is about a lifetime, there is no white space, and no string
// has a byte above 127. Only the attributes, which are JSON themselves, may have escapes. It returns
// false for any other document, which encoding/json must read. With scanDocument, streams are
// created faster, and a start reads a million documents several times as fast.
func scanDocument(b []byte) (v document, ok bool) {
	p := scanner{rest: b}
	p.skip(`{"project":"`)
	project := p.text()
	p.skip(`,"name":"`)
	name := p.text()
	p.skip(`,"created_at":`)
	v.CreatedAt = p.number()
	p.skip(`,"retention_seconds":`)
	v.RetentionSeconds = p.number()
	p.skip(`,"max_bytes":`)
	v.MaxBytes = p.number()
	p.skip(`,"mode":"`)
	mode := p.text()
	if !p.bad && len(p.rest) > 1 {
		p.skip(`,"attributes":"`)
		v.Attributes = p.escaped()
	}
	p.skip(`}`)
	if p.bad || len(p.rest) > 0 {
		return v, false
	}
	v.Project, v.Name = weir.ProjectID(project), string(name)
	switch {
	case string(mode) == string(weir.JSON):
		v.Mode = weir.JSON
	case string(mode) == string(weir.Raw):
		v.Mode = weir.Raw
	default:
		return v, false
	}
	return v, true
}

// scanner reads the parts of a document. The field bad is set if one of the parts is not what
// scanDocument expects.
type scanner struct {
	rest []byte
	bad  bool
}

func (p *scanner) skip(s string) {
	if len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		p.rest, p.bad = nil, true
		return
	}
	p.rest = p.rest[len(s):]
}

// text reads a string and its closing quote, and returns the string.
func (p *scanner) text() []byte {
	for i, c := range p.rest {
		switch {
		case c == '"':
			s := p.rest[:i]
			p.rest = p.rest[i+1:]
			return s
		case c < ' ' || c == '\\' || c > '~':
			p.bad = true
			return nil
		}
	}
	p.bad = true
	return nil
}

// escaped reads a string and its closing quote, and returns the string without its escapes. Only
// quotes and backslashes may be escaped.
func (p *scanner) escaped() string {
	var b strings.Builder
	b.Grow(len(p.rest))
	for i := 0; i < len(p.rest); i++ {
		c := p.rest[i]
		if c == '"' {
			p.rest = p.rest[i+1:]
			return b.String()
		}
		if c == '\\' {
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				break
			}
			c = p.rest[i]
		} else if c < ' ' || c > '~' {
			break
		}
		b.WriteByte(c)
	}
	p.bad = true
	return ""
}

// number reads and returns a positive integer that has no leading zeros and fits into an int64.
func (p *scanner) number() (n int64) {
	i := 0
	for ; i < len(p.rest) && i < 18 && '0' <= p.rest[i] && p.rest[i] <= '9'; i++ {
		n = n*10 + int64(p.rest[i]-'0')
	}
	p.bad = p.bad || i == 0 || p.rest[0] == '0'
	p.rest = p.rest[i:]
	return n
}

// rules returns the rules of a stream with these limits. The parameter grace is the time for which
// its gaps stay open.
func (b *bounds) rules(grace time.Duration) stream.Rules {
	return stream.Rules{
		MaxBytes: b.maxBytes, Retention: b.retention(), GapGrace: grace, Keys: weir.MaxEvictedKeys,
	}
}
