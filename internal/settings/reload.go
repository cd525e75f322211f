package settings

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// reloadable are the settings that change without a restart, sorted.
var reloadable = []string{"log-level", "rate-anonymous", "rate-demo", "rate-live", "rate-test"}

// Reread loads settings with the same flags from the current environment and configuration file.
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
		return nil, fmt.Errorf("repeat the flags: %w", err)
	}
	return next, next.load(flags)
}

// UseLogLevel makes the logger that Load made log at the level of these settings.
func (s *Settings) UseLogLevel() {
	if s.level != nil {
		s.level.Set(levelOf(s.LogLevel))
	}
}

// Changes compares settings that were just re-read with those in effect. It returns the names of the
// settings that changed and take effect at once, and of those that need a restart: running are the
// settings after the last reload, and started those of the start, which all others are still at.
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
