package weir

// The header fields that only Weir defines and that both the server and the Go client use, in the
// form in which http.Header stores them.
const (
	// HeaderContiguous asks for a publish that leaves no gap. Its only value is "true" (D38).
	HeaderContiguous = "X-Svc-Contiguous"

	// HeaderPublisher names the publisher of a batch, in a publish and in its acknowledgement. A
	// name is 1 to MaxPublisher visible ASCII characters (D38).
	HeaderPublisher = "X-Svc-Publisher"

	// HeaderOutcome is in the response to a publish that failed although the batch may have been
	// stored. Its only value is "unknown" (D5).
	HeaderOutcome = "X-Svc-Outcome"

	// HeaderStreamCreated is the creation time of the stream that a response is about (D39).
	HeaderStreamCreated = "X-Svc-Stream-Created"
)
