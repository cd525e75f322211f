package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/access"
)

func configCommand() *cobra.Command {
	var s settings
	var asJSON bool
	c := &cobra.Command{
		Use: "config", Short: "Print the configuration in effect, and where each value comes from", Args: args(),
		Long: `Print the configuration that 'weir serve' would run with, given the same flags, environment and file. What is printed
is itself a configuration file; keys in it are masked. Nothing is started. A configuration with a fault is refused as
'weir serve' refuses it, so that this is also how to check one.`,
		Example: "  weir config\n  weir config --config /etc/weir/weir.toml",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.load(c, c.ErrOrStderr()); err != nil {
				return misuse{err, c.CommandPath()}
			}
			s.warnOfStrangers(c)
			if asJSON {
				return s.printJSON(c.OutOrStdout())
			}
			return s.printTOML(c.OutOrStdout())
		},
	}
	s.flags(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().SortFlags = false
	return c
}

// printTOML prints the settings in the order of the flags, as a file that --config takes. Keys are masked, and masked ones
// would be refused, so that their line is a comment.
func (s *settings) printTOML(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	s.each(func(f *pflag.Flag, from source, v any) {
		line := f.Name + " = " + inTOML(v)
		if f.Name == bootstrapKeys && len(s.bootstrapKeys) > 0 {
			line = "# " + line
		}
		where := from.kind
		if from.name != "" {
			where = from.name
		}
		fmt.Fprintf(t, "%s\t# %s\n", line, where)
	})
	return t.Flush()
}

// shown is a setting as --json prints it.
type shown struct {
	Value  any    `json:"value"`
	Source string `json:"source"`          // flag, environment, file or default
	Where  string `json:"where,omitempty"` // the flag, the variable, or file and line
}

func (s *settings) printJSON(w io.Writer) error {
	all := map[string]shown{}
	s.each(func(f *pflag.Flag, from source, v any) { all[f.Name] = shown{v, from.kind, from.name} })
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(all)
}

// each visits the settings with their values, keys masked.
func (s *settings) each(visit func(f *pflag.Flag, from source, v any)) {
	s.given.VisitAll(func(f *pflag.Flag) {
		if isKey(f) {
			visit(f, s.from.of(f.Name), valueOf(f))
		}
	})
}

// valueOf is the value of a flag as TOML and JSON know it. Keys are masked wherever they stand.
func valueOf(f *pflag.Flag) any {
	if slice, ok := f.Value.(pflag.SliceValue); ok {
		list := append([]string{}, slice.GetSlice()...)
		for i := range list {
			list[i] = access.Redacted(list[i])
		}
		return list
	}
	switch f.Value.Type() {
	case "bool", "int":
		return json.RawMessage(f.Value.String())
	}
	return access.Redacted(f.Value.String())
}

// inTOML writes a value. Strings of JSON are strings of TOML, but for one control character.
func inTOML(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return `""` // strings, lists of them, numbers and booleans always encode
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
