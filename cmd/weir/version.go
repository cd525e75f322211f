package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"weir"
)

// Set by the release build (-ldflags -X). Otherwise what the Go toolchain noted is used.
var (
	buildVersion string
	buildCommit  string
	buildTime    string
)

// build is what /v1/version says.
type build struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	Built   weir.Time `json:"built"`
}

// thisBuild tells which program this is. A build without version control (go run) has its commit unknown, and was built
// when the executable was written.
func thisBuild() build {
	b := build{Version: buildVersion, Commit: buildCommit}
	built, _ := time.Parse(time.RFC3339, buildTime)
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && b.Commit == "":
				b.Commit = s.Value
			case s.Key == "vcs.time" && built.IsZero():
				built, _ = time.Parse(time.RFC3339, s.Value)
			}
		}
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	if built.IsZero() {
		if exe, err := os.Executable(); err == nil {
			if st, err := os.Stat(exe); err == nil {
				built = st.ModTime()
			}
		}
	}
	b.Built = weir.TimeOf(built)
	return b
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print which build this is", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			b := thisBuild()
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(b)
			}
			fmt.Fprintf(c.OutOrStdout(), "weir %s (commit %s, built %s)\n", b.Version, b.Commit, b.Built)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
