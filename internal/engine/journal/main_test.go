package journal

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"weir/internal/disk/faulty"
)

func TestMain(m *testing.M) {
	flag.Parse()
	checks := flag.Lookup("rapid.checks")
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f == checks })
	if all, err := strconv.Atoi(checks.DefValue); err == nil && !set {
		checks.Value.Set(strconv.Itoa(faulty.Cases(all)))
	}
	os.Exit(m.Run())
}

// Sizes of the file "end" and of each of its two blocks.
const endLen, endBlockLen = 8192, 4096

// Sizes of the parts of a segment, and the offset of the watermark.
const headerLen, footerLen, watermarkAt, watermarkLen = 64, 64, 2048, 16
