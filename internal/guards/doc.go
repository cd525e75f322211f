// Package guards holds the project to its own rules by ordinary tests: which room may import which, package comments,
// sizes, no sleeping in tests, and papers that say what the code does. It has no code but tests.
//
// A guard looks at a tree of files and returns complaints. Each is run on the project, which must give none, and on
// small trees with one planted fault each, which must give that one: a guard that cannot fail guards nothing.
package guards
