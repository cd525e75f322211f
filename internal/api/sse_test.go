package api_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// sseEvent is one block of an event stream: the lines up to the next empty line.
type sseEvent struct {
	id, name, data string
	retry          string
	comment        bool
}

// sseReader parses an event stream more strictly than the standard. It accepts only the fields that
// Weir sends, each at most once per block. Every line must end with LF, and every block with an
// empty line.
type sseReader struct{ r *bufio.Reader }

// next returns the next block. It returns io.EOF only if the stream ends between two blocks.
func (s *sseReader) next() (e sseEvent, err error) {
	seen := map[string]bool{}
	for n := 0; ; n++ {
		line, err := s.r.ReadString('\n')
		if err == io.EOF && (line != "" || n > 0) {
			return e, fmt.Errorf("the stream ends inside an event, after %q", line)
		}
		if err != nil {
			return e, err
		}
		line = line[:len(line)-1]
		if line == "" {
			if n == 0 {
				return e, fmt.Errorf("empty block")
			}
			return e, nil
		}
		if strings.ContainsAny(line, "\r\x00") {
			return e, fmt.Errorf("line %q contains a CR or NUL", line)
		}
		if strings.HasPrefix(line, ":") {
			e.comment = true
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok || seen[name] {
			return e, fmt.Errorf("line %q has no field, or a field that the block already has", line)
		}
		seen[name] = true
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "retry":
			e.retry = value
		default:
			return e, fmt.Errorf("unknown field %q", name)
		}
	}
}
