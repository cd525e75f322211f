package weir

// Batch is one stored publish.
type Batch struct {
	Seq         Seq
	Time        Time   // when it was stored
	Events      uint32 // number of events; 1 for a raw batch (D6)
	ContentType string // raw batches only: as the client sent it, parameters included (D7)
	Payload     []byte // the JSON array of events in a json stream, the request body in a raw one
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
