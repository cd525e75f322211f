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

// PrintTOML prints the settings in the order of the flags, as a file that --config accepts. API keys
// are masked. A masked key would be refused, so that line is a comment.
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
	Where  string `json:"where,omitempty"` // the flag, the variable, or file and line
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

// each visits the settings with their values, API keys masked.
func (s *Settings) each(visit func(f *pflag.Flag, from source, v any)) {
	s.flags.VisitAll(func(f *pflag.Flag) {
		if isKey(f) {
			visit(f, s.from.of(f.Name), valueOf(f))
		}
	})
}

// valueOf is the value of a flag as TOML and JSON spell it, with API keys masked wherever they occur.
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

// inTOML encodes a value. JSON strings are valid TOML strings, except for the control character 0x7f.
func inTOML(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return `""` // strings, lists of them, numbers and booleans always encode
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}
