package journal

import (
	"errors"
	"fmt"

	"weir/internal/engine"
)

// Open returns these errors for a directory that this version cannot open. It leaves the directory
// unchanged.
var (
	ErrForeign = errors.New("not a Weir journal")
	ErrNewer   = errors.New("written by a newer version of Weir")
)

var (
	errShort    = errors.New("truncated")
	errChecksum = errors.New("checksum does not match")
	errMissing  = errors.New("missing")
)

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
