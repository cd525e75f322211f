package weir

// Batch is one stored publish.
type Batch struct {
	Seq         Seq
	Time        Time   // when the batch was stored
	Events      uint32 // number of events; 1 for a raw batch (D6)
	ContentType string // raw batches only: the content type that the client sent, with its parameters (D7)
	Payload     []byte // the JSON array of events in a json stream, the request body in a raw stream
}

// Ack acknowledges a publish. It is issued only after the batch is durable (D5).
type Ack struct {
	StreamID  StreamID `json:"stream_id"`
	Seq       Seq      `json:"seq"`
	Accepted  uint32   `json:"accepted"`
	Cursor    Seq      `json:"cursor"`
	Duplicate bool     `json:"duplicate"`

	// Publisher is the name that the batch was stored with; "" if it has none. It is not part of the
	// JSON object but a header field, HeaderPublisher (D38).
	Publisher string `json:"-"`
}
