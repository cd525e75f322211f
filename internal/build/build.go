// Package build knows which build of Weir this is: its version, its commit and when it was built.
package build

import (
	"os"
	"runtime/debug"
	"time"

	"weir"
)

// Release builds set these with -ldflags -X. Other builds leave them empty, and the function This
// uses the values that the Go toolchain recorded.
var (
	version string
	commit  string
	built   string // RFC 3339
)

// Info is the response of /v1/version and the output of weir version.
type Info struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Built   weir.Time `json:"built"`
}

// This returns information about the running program. If the program was built without version
// control, as by go run, the version is "devel", the commit is "unknown", and the build time is the
// time at which the executable was written.
func This() Info {
	b := Info{Version: version, Commit: commit}
	at, _ := time.Parse(time.RFC3339, built)
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && b.Commit == "":
				b.Commit = s.Value
			case s.Key == "vcs.time" && at.IsZero():
				at, _ = time.Parse(time.RFC3339, s.Value)
			}
		}
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	if at.IsZero() {
		at = executableTime()
	}
	b.Built = weir.TimeOf(at)
	return b
}

func executableTime() time.Time {
	exe, err := os.Executable()
	if err != nil {
		return time.Time{}
	}
	st, err := os.Stat(exe)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}
