package weir

import "time"

// The fixed limits of the API. Limits that an operator can change are settings, not constants.
const (
	MaxName = 128 // Unicode code points in the name of a stream or project; the minimum is 1

	MinRetention     = 60        // seconds
	MaxRetention     = 2_592_000 // seconds: 30 days
	DefaultRetention = 86_400    // seconds: 1 day

	MaxTTL = 31_536_000 // seconds that a stream can live without being used: 365 days; the minimum is 1

	MinMaxBytes     = 1 << 20
	MaxMaxBytes     = 4 << 30
	DefaultMaxBytes = 256 << 20

	MaxBody       = 8 << 20  // bytes in the body of a publish, inclusive (D9)
	MaxCreateBody = 64 << 10 // bytes in the body of a create (D10)

	MaxAhead = 1024 // maximum distance of a sequence number above the cursor (D3)

	MaxIdempotencyKey = 255 // characters (D25)
	MaxPublisher      = 64  // characters in the name of a publisher (D38)

	// A batch of fewer than MinCharge bytes counts as MinCharge bytes towards max_bytes (D12). The
	// server needs about as much to keep track of a batch, in memory and on disk.
	MinCharge = 128

	// An idempotency key is remembered for IdempotencyKeyLife, even after its batch was evicted. But
	// of the keys of evicted batches, a stream remembers only the newest MaxEvictedKeys (D25).
	IdempotencyKeyLife = 24 * time.Hour
	MaxEvictedKeys     = 100_000

	DefaultPage = 20  // streams per page of a list
	MaxPage     = 100 // streams per page of a list

	// The limits of a page of batches (D37).
	DefaultBatches = 100     // batches per page
	MaxBatches     = 1000    // batches per page
	MaxPageBytes   = 8 << 20 // bytes per page, unless its first batch is larger
	MaxPageWait    = 30      // seconds for which a request for a page can wait
)
