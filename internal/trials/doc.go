// Package trials tries the real weir binary: it builds it, starts it on free ports with fresh data, and runs the suite of
// internal/contract against it, on one node and on three. Then it does what happens in operation: kill -9, power cuts, full
// restarts under load, nodes that freeze, networks that are cut, clients that attack. After each of these the acknowledged
// batches must all be there, once and in order. It has no code but tests.
package trials
