package api

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// event is one block of an event stream.
type sseEvent struct {
	id, name, data string
	retry          string
	comment        bool
}

// events reads an event stream strictly: fields that we send, each at most once in a block, one line each, LF at the end
// of lines, and an empty line after each block. It returns io.EOF between blocks alone.
type sseReader struct{ r *bufio.Reader }

func (s *sseReader) next() (e sseEvent, err error) {
	seen := map[string]bool{}
	for n := 0; ; n++ {
		line, err := s.r.ReadString('\n')
		if err == io.EOF && (line != "" || n > 0) {
			return e, fmt.Errorf("cut off within an event, after %q", line)
		}
		if err != nil {
			return e, err
		}
		line = line[:len(line)-1]
		if line == "" {
			if n == 0 {
				return e, fmt.Errorf("an empty block")
			}
			return e, nil
		}
		if strings.ContainsAny(line, "\r\x00") {
			return e, fmt.Errorf("%q holds a CR or NUL", line)
		}
		if strings.HasPrefix(line, ":") {
			e.comment = true
			continue
		}
		name, value, ok := strings.Cut(line, ": ")
		if !ok || seen[name] {
			return e, fmt.Errorf("line %q", line)
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
			return e, fmt.Errorf("field %q", name)
		}
	}
}
