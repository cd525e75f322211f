//go:build !linux && !darwin

package disk

import "errors"

// Space returns errors.ErrUnsupported on this system.
func Space(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
