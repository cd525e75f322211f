package settings

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"weir/internal/access"
)

// PrintTOML prints the settings in the order of the flags, as a file that --config accepts. API
// keys are masked. A line with a masked key is printed as a comment, because --config would refuse
// a masked key.
func (s *Settings) PrintTOML(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	s.each(func(f *pflag.Flag, from source, v any) {
		line := f.Name + " = " + inTOML(v)
		if f.Name == bootstrapKeysFlag && len(s.BootstrapKeys) > 0 {
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

// shown is a setting as PrintJSON prints it.
type shown struct {
	Value  any    `json:"value"`
	Source string `json:"source"`          // flag, environment, file or default
	Where  string `json:"where,omitempty"` // name of the flag, name of the variable, or file and line
}

// PrintJSON prints the settings as one JSON object. API keys are masked.
func (s *Settings) PrintJSON(w io.Writer) error {
	all := map[string]shown{}
	s.each(func(f *pflag.Flag, from source, v any) { all[f.Name] = shown{v, from.kind, from.name} })
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(all)
}

// each calls the function visit for every setting, with its value. API keys are masked.
func (s *Settings) each(visit func(f *pflag.Flag, from source, v any)) {
	s.flags.VisitAll(func(f *pflag.Flag) {
		if isKey(f) {
			visit(f, s.from.of(f.Name), valueOf(f))
		}
	})
}

// valueOf returns the value of a flag in the type that TOML and JSON use for it. API keys are
// masked wherever they occur.
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

// inTOML encodes a value. JSON strings are valid TOML strings, except for the control character
// 0x7f.
func inTOML(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return `""` // cannot happen: strings, lists of strings, numbers and booleans can always be encoded
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
