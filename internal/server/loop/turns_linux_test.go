package loop

import "testing"

// Every second loop gets new connections, and all loops get parked responses.
func TestEverySecondLoopServes(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 8: 4} {
		ls := &Loops{}
		for range n {
			ls.all = append(ls.all, &loop{})
		}
		serving, parking := map[*loop]int{}, map[*loop]int{}
		for range 100 * n {
			serving[ls.serving()]++
			parking[ls.parking()]++
		}
		if len(serving) != want || len(parking) != n {
			t.Errorf("%d loops: %d get connections, and %d get parked responses; want %d and %d", n, len(serving), len(parking), want, n)
		}
	}
}
