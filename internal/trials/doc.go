// Package trials tests the real weir binary. It builds the binary, starts it on free ports with
// fresh data, and runs the suite of internal/contract against it, on one node and on three. Then it
// causes the faults that occur in production: kill -9, power cuts, restarts under load, frozen
// nodes, network partitions, full disks, wrong clocks and attacks by clients. After each fault,
// every acknowledged batch must be stored, once and in order. The package has no code but tests.
package trials
