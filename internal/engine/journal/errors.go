package journal

import (
	"errors"
	"fmt"

	"weir/internal/engine"
)

// Why a data directory is not opened. Each leaves the directory as it was.
var (
	ErrForeign = errors.New("not a weir journal")
	ErrNewer   = errors.New("written by a newer version of weir")
)

var (
	errShort    = errors.New("cut short")
	errChecksum = errors.New("checksum does not match")
	errMissing  = errors.New("the file is missing")
)

// DamageError says where the journal does not hold what it must hold. It is an engine.ErrDamaged.
type DamageError struct {
	File   string
	Offset int64
	What   string // what should be there
	Err    error  // why it is not
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("damaged data: %s at offset %d of %s: %v", e.What, e.Offset, e.File, e.Err)
}

func (e *DamageError) Unwrap() []error { return []error{engine.ErrDamaged, e.Err} }
