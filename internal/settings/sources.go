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
	name string // place where the operator finds the value: --gap-grace, WEIR_GAP_GRACE or weir.toml:12; empty for a default
}

// nameOf returns the name of a flag as the operator wrote it in this source.
func (s source) nameOf(flag string) string {
	switch s.kind {
	case byEnvironment:
		return s.name
	case byFile:
		return s.name + ": " + flag
	}
	return "--" + flag
}

// sources maps each flag that was set to its source. A flag that is not in the map has its default.
type sources map[string]source

func (s sources) of(flag string) source {
	if from, ok := s[flag]; ok {
		return from
	}
	return source{kind: byDefault}
}

// note records a source for every flag that is set but has no source in the map yet.
func (s sources) note(f *pflag.FlagSet, from func(*pflag.Flag) source) {
	f.VisitAll(func(f *pflag.Flag) {
		if _, known := s[f.Name]; f.Changed && !known {
			s[f.Name] = from(f)
		}
	})
}

// configure sets the flags that are not on the command line. It takes their values from WEIR_*
// variables, or else from the file that --config names. It returns the source of each value.
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
		return from, nil // an empty WEIR_CONFIG means no file: deployment templates often set the variable to ""
	}
	if err := readFile(path, f, from); err != nil {
		return nil, err
	}
	return from, nil
}

// Environment sets flags from WEIR_* variables, except the flags that are on the command line.
func Environment(f *pflag.FlagSet) error {
	var all faults
	f.VisitAll(func(flag *pflag.Flag) {
		name := Variable(flag.Name)
		v, ok := os.LookupEnv(name)
		if !ok || flag.Changed || flag.Name == "help" {
			return
		}
		if err := f.Set(flag.Name, v); err != nil {
			all = append(all, fmt.Errorf("%s: %w", name, withoutKeys(err)))
		}
	})
	return all.orNil()
}

// Variable returns the name of the environment variable of a flag.
func Variable(flag string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// isKey reports whether a flag is also a key of the configuration. Flags that select what a command
// does, such as --help, are not keys.
func isKey(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "json" && f.Name != configFlag
}

var flagFirst = regexp.MustCompile(`^--([a-z0-9-]+)`)

// named rewrites errors that begin with a flag, so that they begin with the source of the flag's
// value instead. It masks API keys in the text, because an operator may have written one in the
// wrong place.
func (s sources) named(err error) error {
	all, ok := err.(faults)
	if !ok {
		return err
	}
	var list faults
	for _, err := range all {
		text := access.Redacted(err.Error())
		if m := flagFirst.FindStringSubmatch(text); m != nil {
			text = s.of(m[1]).nameOf(m[1]) + text[len(m[0]):]
		}
		list = append(list, errors.New(text))
	}
	return list
}

// faults is a list of errors that is printed on one line.
type faults []error

func (f faults) Error() string {
	text := make([]string, len(f))
	for i, err := range f {
		text[i] = err.Error()
	}
	return strings.Join(text, "; ")
}

// orNil returns the list as an error, or nil if the list is empty. Without this, an empty list
// would become an error value that is not equal to nil.
func (f faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// WEIR_* variables that belong to no flag but are known: those of client commands, and those that
// orchestrators set in every container next to a service called weir.
var (
	clientVariables = []string{"WEIR_URL", "WEIR_KEY"}
	orchestrated    = regexp.MustCompile(`^WEIR_(SERVICE_(HOST|PORT)|PORT)(_|$)`)
)

// UnknownVariables returns the names of the WEIR_* variables that belong to no flag, sorted. Such
// names are probably misspelt. They are not an error, because they may be meant for other programs
// or versions on the same machine. UnknownVariables returns no values, because values may be
// secret.
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
