package settings

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"weir/internal/access"
)

// The kinds of sources.
const (
	byDefault     = "default"
	byFlag        = "flag"
	byEnvironment = "environment"
	byFile        = "file"
)

// source is where the value of a flag came from.
type source struct {
	kind string
	name string // where the operator finds it: --gap-grace, WEIR_GAP_GRACE, weir.toml:12; empty for a default
}

// of names a flag as the operator wrote it there.
func (s source) of(flag string) string {
	switch s.kind {
	case byEnvironment:
		return s.name
	case byFile:
		return s.name + ": " + flag
	}
	return "--" + flag
}

// sources maps each flag that was set to its source. A flag that is missing has its default.
type sources map[string]source

func (s sources) of(flag string) source {
	if from, ok := s[flag]; ok {
		return from
	}
	return source{kind: byDefault}
}

// note records a source for every flag that has been set and has no source.
func (s sources) note(f *pflag.FlagSet, from func(*pflag.Flag) source) {
	f.VisitAll(func(f *pflag.Flag) {
		if _, known := s[f.Name]; f.Changed && !known {
			s[f.Name] = from(f)
		}
	})
}

// configure sets the flags that were not given from WEIR_* variables, and those that are in neither
// from the file that --config names. It returns the source of each value.
func configure(f *pflag.FlagSet) (sources, error) {
	from := sources{}
	from.note(f, func(f *pflag.Flag) source { return source{byFlag, "--" + f.Name} })
	if err := Environment(f); err != nil {
		return nil, err
	}
	from.note(f, func(f *pflag.Flag) source { return source{byEnvironment, Variable(f.Name)} })
	path := f.Lookup(configFlag).Value.String()
	if path == "" {
		if from.of(configFlag).kind == byFlag {
			return nil, errors.New("--config: empty")
		}
		return from, nil // templates leave an empty variable when there is no file
	}
	if err := readFile(path, f, from); err != nil {
		return nil, err
	}
	return from, nil
}

// Environment sets the flags that were not given from WEIR_* variables.
func Environment(f *pflag.FlagSet) error {
	var all faults
	f.VisitAll(func(flag *pflag.Flag) {
		name := Variable(flag.Name)
		v, ok := os.LookupEnv(name)
		if !ok || flag.Changed || flag.Name == "help" {
			return
		}
		if err := f.Set(flag.Name, v); err != nil {
			all = append(all, fmt.Errorf("%s: %w", name, WithoutKeys(err)))
		}
	})
	return all.orNil()
}

// Variable is the environment variable of a flag.
func Variable(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// isKey reports whether a flag is also a key of the configuration. Flags that choose what a command
// does, rather than how the server runs, are not.
func isKey(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "json" && f.Name != configFlag
}

var flagFirst = regexp.MustCompile(`^--([a-z0-9-]+)`)

// named rewrites faults that begin with a flag: they begin with the source of its value instead. A
// key that was typed in the wrong place is masked.
func (s sources) named(err error) error {
	all, ok := err.(faults)
	if !ok {
		return err
	}
	var list faults
	for _, err := range all {
		text := access.Redacted(err.Error())
		if m := flagFirst.FindStringSubmatch(text); m != nil {
			text = s.of(m[1]).of(m[1]) + text[len(m[0]):]
		}
		list = append(list, errors.New(text))
	}
	return list
}

// faults are several errors on one line.
type faults []error

func (f faults) Error() string {
	text := make([]string, len(f))
	for i, err := range f {
		text[i] = err.Error()
	}
	return strings.Join(text, "; ")
}

// orNil is nil without faults: an empty list would not compare equal to nil as an error.
func (f faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Variables that are not unknown although no flag has them: those of client commands, and those that
// orchestrators set in every container beside a service called weir.
var (
	clientVariables = []string{"WEIR_URL", "WEIR_KEY"}
	orchestrated    = regexp.MustCompile(`^WEIR_(SERVICE_(HOST|PORT)|PORT)(_|$)`)
)

// UnknownVariables lists the WEIR_* variables of an environment that none of the flags reads, sorted.
// They are probably misspelt. They are not an error, since the machine may be shared with other
// programs and versions. It reports no values: they may be secret.
func UnknownVariables(flags, environ []string) []string {
	known := slices.Clone(clientVariables)
	for _, f := range flags {
		known = append(known, Variable(f))
	}
	var list []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "WEIR_") && !slices.Contains(known, name) && !orchestrated.MatchString(name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
