package journal

import (
	"errors"
	"weir/internal/engine/journal/segments"
)

// Open returns these errors for a directory that this version cannot open. It leaves the directory
// unchanged.
var (
	ErrForeign = errors.New("not a Weir journal")
	ErrNewer   = errors.New("written by a newer version of Weir")
)

var errMissing = errors.New("missing")

// DamageError says where the journal is damaged. It wraps engine.ErrDamaged.
type DamageError = segments.DamageError
