package durable

import (
	"testing"
	"time"
)

// SetSince replaces time.Since for this package until the test ends.
func SetSince(t *testing.T, f func(time.Time) time.Duration) {
	before := since
	since = f
	t.Cleanup(func() { since = before })
}
