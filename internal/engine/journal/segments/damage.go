package segments

import (
	"errors"
	"fmt"
	"weir"
	"weir/internal/engine"
)

// Fate says what one instance of damage means for the data that was stored there.
type Fate string

// The fates of damaged data.
const (
	Dead    Fate = "dead"    // nothing is lost: the data was trimmed, replaced or deleted, or there is another copy
	Intact  Fate = "intact"  // nothing is lost: the data can be rebuilt from undamaged data
	Mended  Fate = "mended"  // nothing is lost: one bit is flipped, and a repair corrects it
	Lost    Fate = "lost"    // it is known which data was there, but the data cannot be read
	Unknown Fate = "unknown" // it is not known which data was there
)

// Damage describes one damaged range of a file.
type Damage struct {
	File     string       `json:"file"`
	Offset   int64        `json:"offset"`
	What     string       `json:"what"`
	Why      string       `json:"why"`
	Log      engine.LogID `json:"-"`
	Document string       `json:"document,omitempty"` // key of the damaged document, or of the document that owns the log
	Seq      *weir.Seq    `json:"seq,omitempty"`      // sequence, if the damaged record is an entry
	Fate     Fate         `json:"fate"`
}

// DamageError says where the journal is damaged. It wraps engine.ErrDamaged.
type DamageError struct {
	File   string
	Offset int64
	What   string // the part of the format that belongs at this offset, such as "group" or "footer"
	Err    error  // what is wrong with that part
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("damaged data: %s at offset %d of %s: %v", e.What, e.Offset, e.File, e.Err)
}

func (e *DamageError) Unwrap() []error { return []error{engine.ErrDamaged, e.Err} }

// The errors of decoding.
var (
	errShort    = errors.New("truncated")
	ErrChecksum = errors.New("checksum does not match")
	ErrMissing  = errors.New("missing")
)
