//go:build race

package main

// raced is true if the tests run under the race detector.
const raced = true
