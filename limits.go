package weir

import "time"

// The fixed limits of the interface. What an operator can set is a flag, not a constant.
const (
	MaxName = 128 // Unicode code points; the least is 1

	MinRetention     = 60
	MaxRetention     = 2_592_000
	DefaultRetention = 86_400

	MinMaxBytes     = 1 << 20
	MaxMaxBytes     = 4 << 30
	DefaultMaxBytes = 256 << 20

	MaxBody       = 8 << 20  // of a publish, inclusive (D9)
	MaxCreateBody = 64 << 10 // of a create (D10)

	MaxAhead = 1024 // how far a sequence may be above the cursor (D3)

	MaxIdempotencyKey  = 255            // characters (D25)
	IdempotencyKeyLife = 24 * time.Hour // at most; never longer than its batch is kept (D25)

	DefaultPage = 20
	MaxPage     = 100
)
