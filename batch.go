package weir

// Batch is one stored publish. Payload is the array of events as it is kept for a json stream, the body for a raw one.
type Batch struct {
	Seq         Seq
	Time        Time
	Events      uint32 // length of the array of events; 1 for a raw batch (D6)
	ContentType string // of a raw batch: as it came, parameters included (D7)
	Payload     []byte
}

// Ack is the publish acknowledgement of the interface. It exists only for what is durable (D5).
type Ack struct {
	StreamID  StreamID `json:"stream_id"`
	Seq       Seq      `json:"seq"`
	Accepted  uint32   `json:"accepted"`
	Cursor    Seq      `json:"cursor"`
	Duplicate bool     `json:"duplicate"`
}
