package settings

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// reloadable are the settings that change without a restart, sorted.
var reloadable = []string{"log-level", "rate-anonymous", "rate-demo", "rate-live", "rate-test"}

// Reread loads settings from the flags of s and from the current environment and configuration
// file.
func (s *Settings) Reread() (*Settings, error) {
	next := &Settings{level: s.level}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	next.Flags(flags)
	var err error
	s.flags.VisitAll(func(f *pflag.Flag) {
		if s.from.of(f.Name).kind != byFlag || err != nil || !isKey(f) && f.Name != configFlag {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			to := flags.Lookup(f.Name)
			err, to.Changed = to.Value.(pflag.SliceValue).Replace(list.GetSlice()), true
		} else {
			err = flags.Set(f.Name, f.Value.String())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("apply the command-line flags again: %w", err)
	}
	return next, next.load(flags)
}

// UseLogLevel applies the log level of these settings to the logger that Load returned.
func (s *Settings) UseLogLevel() {
	if s.level != nil {
		s.level.Set(levelOf(s.LogLevel))
	}
}

// Changes compares s, which was just re-read, with the settings in effect. The parameter running
// has the settings after the last reload: reloadable settings are compared with these. The
// parameter started has the settings from the start of the server: all other settings are compared
// with these, because they stay in effect until a restart. The result changed lists the settings
// that take effect at once. The result waiting lists the settings that need a restart.
func (s *Settings) Changes(running, started *Settings) (changed, waiting []string) {
	s.flags.VisitAll(func(f *pflag.Flag) {
		before, list := started, &waiting
		if slices.Contains(reloadable, f.Name) {
			before, list = running, &changed
		}
		if before.flags.Lookup(f.Name).Value.String() != f.Value.String() {
			*list = append(*list, f.Name)
		}
	})
	return changed, waiting
}
