// Package guards checks with ordinary tests that the project follows its own rules: which package
// may import which, package comments, sizes, no sleeping in tests, and documents that match the
// code. The package contains only tests.
//
// A guard is a function that reads a tree of files and returns complaints. Each guard runs on the
// project, where it must have no complaint. It also runs on small trees with one planted fault
// each, where its only complaint must be about that fault.
package guards
