package weir

// Mode says what the batches of a stream are.
type Mode string

// The two modes. A stream keeps the one that it was created with.
const (
	JSON Mode = "json" // batches are arrays of JSON values
	Raw  Mode = "raw"  // a batch is one opaque body with a content type
)

// Valid tells whether m is one of the modes.
func (m Mode) Valid() bool { return m == JSON || m == Raw }

// Stream is the stream object of the interface.
type Stream struct {
	ID               StreamID `json:"id"`
	Name             string   `json:"name"`
	CreatedAt        Time     `json:"created_at"`
	RetentionSeconds int64    `json:"retention_seconds"`
	MaxBytes         int64    `json:"max_bytes"`
	Cursor           Seq      `json:"cursor"`
	BytesStored      int64    `json:"bytes_stored"`
	Mode             Mode     `json:"mode"`
}

// Cursor is the cursor object of the interface: the highest sequence ever stored and when it was stored (D13).
type Cursor struct {
	Cursor    Seq  `json:"cursor"`
	UpdatedAt Time `json:"updated_at"`
}
