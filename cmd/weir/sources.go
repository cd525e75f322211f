package main

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/access"
)

// configFlag names the file that flags may be set in. It is no key of the file itself.
const configFlag = "config"

// The kinds of sources.
const (
	byDefault     = "default"
	byFlag        = "flag"
	byEnvironment = "environment"
	byFile        = "file"
)

// source is where the value of a flag comes from.
type source struct {
	kind string
	name string // where the operator finds it: --gap-grace, WEIR_GAP_GRACE, weir.toml:12; empty of a default
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

// sources are those of the flags that have not their default.
type sources map[string]source

func (s sources) of(flag string) source {
	if from, ok := s[flag]; ok {
		return from
	}
	return source{kind: byDefault}
}

// configure sets the flags that were not given from WEIR_* variables, and those that are in neither from the file that
// --config names. It returns where each value comes from.
func configure(c *cobra.Command) (sources, error) {
	from := sources{}
	note := func(s func(*pflag.Flag) source) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if _, known := from[f.Name]; f.Changed && !known {
				from[f.Name] = s(f)
			}
		})
	}
	note(func(f *pflag.Flag) source { return source{byFlag, "--" + f.Name} })
	if err := environment(c); err != nil {
		return nil, err
	}
	note(func(f *pflag.Flag) source { return source{byEnvironment, variable(f)} })
	path := c.Flags().Lookup(configFlag).Value.String()
	if path == "" {
		if from.of(configFlag).kind == byFlag {
			return nil, errors.New("--config: empty")
		}
		return from, nil // an empty variable is what a template leaves where there is no file
	}
	if err := readFile(path, c.Flags(), from); err != nil {
		return nil, err
	}
	return from, nil
}

// isKey tells whether a flag is also a key of the configuration: not if it says what a command does rather than how the
// server runs.
func isKey(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "json" && f.Name != configFlag
}

var flagFirst = regexp.MustCompile(`^--([a-z0-9-]+)`)

// named makes faults that begin with a flag begin with where its value came from. A key that was typed in the wrong place
// is not repeated.
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

// faults are several errors in one line.
type faults []error

func (f faults) Error() string {
	text := make([]string, len(f))
	for i, err := range f {
		text[i] = err.Error()
	}
	return strings.Join(text, "; ")
}

// Variables of commands that talk to a server by HTTP, and of orchestrators: for a service that is called weir they set
// such variables in every container beside it.
var (
	clientVariables = []string{"WEIR_URL", "WEIR_KEY"}
	orchestrated    = regexp.MustCompile(`^WEIR_(SERVICE_(HOST|PORT)|PORT)(_|$)`)
)

// strangers are the WEIR_* variables that no command reads: probably misspelt. They are no error, since a machine may be
// shared with other programs and other versions. Values are not looked at: they may be secret.
func strangers(root *cobra.Command, environ []string) []string {
	known := slices.Clone(clientVariables)
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, f := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			f.VisitAll(func(f *pflag.Flag) { known = append(known, variable(f)) })
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
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

// warnOfStrangers logs variables that look like ours and are not.
func (s *settings) warnOfStrangers(c *cobra.Command) {
	for _, name := range strangers(c.Root(), os.Environ()) {
		s.logger.Warn("this variable is none of ours, and has no effect", "variable", name)
	}
}
