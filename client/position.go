package client

import (
	"errors"
	"fmt"
	"strings"

	"weir"
)

// Position is a point in a stream that a subscriber has reached. A program can save it as text and
// continue there with [Resume].
type Position struct {
	Seq     weir.Seq  // sequence of the last batch or gap before this point
	Created weir.Time // when the stream was created (D39); 0 if unknown, as in a position that is a sequence number alone
	Empty   bool      // nothing was ever stored in the stream; Seq is 0
}

const empty = "empty"

// String returns the text of the position, such as 41@2026-11-15T00:00:00.000Z.
func (p Position) String() string {
	text := p.Seq.String()
	if p.Empty {
		text = empty
	}
	if p.Created != 0 {
		text += "@" + p.Created.String()
	}
	return text
}

// MarshalText returns the text of the position.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text of a position. A sequence number alone is also accepted.
func (p *Position) UnmarshalText(b []byte) error {
	var got Position
	seq, created, dated := strings.Cut(string(b), "@")
	if got.Empty = seq == empty; !got.Empty {
		n, err := weir.ParseSeq(seq)
		if err != nil {
			return fmt.Errorf("position %.40q: %w", b, err)
		}
		got.Seq = n
	}
	if dated {
		if err := got.Created.UnmarshalText([]byte(created)); err != nil {
			return fmt.Errorf("position %.40q: %w", b, err)
		}
	} else if got.Empty {
		return errors.New("position: a position in an empty stream needs the time of its creation")
	}
	*p = got
	return nil
}

// Reset says that a stream was deleted and created again, or restored from a backup that is older
// than the subscriber's position. The subscriber cannot tell which of the batches that it has
// yielded are still in the stream.
type Reset struct {
	Lost    Position  // position of the subscriber in the former stream
	Created weir.Time // when the existing stream was created; 0 if the service does not say
}

// Error describes the reset.
func (r *Reset) Error() string {
	return fmt.Sprintf("the stream was created again or restored from a backup; position %v is lost", r.Lost)
}
