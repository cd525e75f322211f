package segments

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// nextFrame finds the same offsets as a search that tests every aligned offset.
func TestNextFrame(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		b := make([]byte, rng.IntN(200))
		for range rng.IntN(6) { // place frames anywhere, also overlapping and at unaligned offsets
			if at := rng.IntN(len(b) + 1); at+4 <= len(b) {
				copy(b[at:], []string{"WGR2", "WGRP", "WGRX"}[rng.IntN(3)])
			}
		}
		var want, got []int
		for i := 0; i+FrameSize <= len(b); i += align {
			if m := binary.LittleEndian.Uint32(b[i+4:]); m == frameMagic || m == oldFrameMagic {
				want = append(want, i)
			}
		}
		for i := nextFrame(b, 0); i >= 0; i = nextFrame(b, i+1) {
			got = append(got, i)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("%x: found at %v, want %v", b, got, want)
		}
	}
}
