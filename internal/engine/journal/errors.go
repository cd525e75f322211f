package journal

import (
	"errors"
)

// Open returns these errors for a directory that this version cannot open. It leaves the directory
// unchanged.
var (
	ErrForeign = errors.New("not a Weir journal")
	ErrNewer   = errors.New("written by a newer version of Weir")
)

var errMissing = errors.New("missing")
