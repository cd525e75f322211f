// Package weir holds the nouns of the service: streams, batches, sequences, acknowledgements, identifiers, limits and
// the errors that a caller may see. It knows no storage, no clock and no HTTP; every other package speaks in its words.
package weir
