// Package guards holds the project to its own rules with ordinary tests: which room may import
// which, package comments, sizes, no sleeping in tests, and documents that match the code. It has
// no code but tests.
//
// A guard is a function that reads a tree of files and returns complaints. Each one runs twice: on
// the project, which must give none, and on small trees with one planted fault each, which must
// give exactly that complaint.
package guards
