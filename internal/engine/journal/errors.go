package journal

import (
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// DamageError says where the journal is damaged. It wraps engine.ErrDamaged.
type DamageError = segments.DamageError

// Open returns these errors for a directory that this version cannot open. It leaves the directory
// unchanged.
var (
	ErrForeign = directory.ErrForeign
	ErrNewer   = directory.ErrNewer
)
