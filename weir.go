// Package weir defines the types that all other packages share: streams, batches, sequence numbers,
// acknowledgements, identifiers, limits, and the errors that a client may see. It depends on no
// storage, no clock and no HTTP.
package weir
