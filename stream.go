package weir

// Mode says what the batches of a stream contain.
type Mode string

// The modes. The mode of a stream never changes.
const (
	JSON Mode = "json" // batches are arrays of JSON values
	Raw  Mode = "raw"  // a batch is one opaque body with a content type
)

// Valid reports whether m is JSON or Raw.
func (m Mode) Valid() bool { return m == JSON || m == Raw }

// Stream is the stream object that clients see.
type Stream struct {
	ID               StreamID `json:"id"`
	Name             string   `json:"name"`
	CreatedAt        Time     `json:"created_at"`
	RetentionSeconds int64    `json:"retention_seconds"`
	MaxBytes         int64    `json:"max_bytes"`
	Cursor           Seq      `json:"cursor"`
	BytesStored      int64    `json:"bytes_stored"`
	Mode             Mode     `json:"mode"`
	TTLSeconds       int64    `json:"ttl_seconds,omitempty"` // time to live since the last use, in seconds; 0 if there is none (D37)
	Closed           bool     `json:"closed,omitempty"`      // the stream takes no more batches (D37)
}

// Cursor is the cursor object that clients see: the highest sequence number ever stored, and when
// that batch was stored (D13).
type Cursor struct {
	Cursor    Seq  `json:"cursor"`
	UpdatedAt Time `json:"updated_at"`
}
