package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"

	"weir/internal/access"
)

// maxConfig is the maximum size of a configuration file in bytes. A larger file is probably not a
// configuration file, and --config names it by mistake.
const maxConfig = 1 << 20

// readFile reads a TOML file whose keys are the names of flags. It sets each flag that neither the
// command line nor an environment variable has set. An error names the line of the file. Keys that
// a flag or variable overrides are checked too: otherwise an invalid value would stay unnoticed
// until the operator removes the override.
func readFile(path string, f *pflag.FlagSet, from sources) error {
	text, err := os.ReadFile(path)
	if err != nil {
		if fault, ok := errors.AsType[*fs.PathError](err); ok {
			err = fault.Err
		}
		return fmt.Errorf("%s %s: %w", from.of(configFlag).nameOf(configFlag), path, err)
	}
	if len(text) > maxConfig {
		return fmt.Errorf("%s: larger than the limit for configuration files, %d bytes", path, maxConfig)
	}
	values := map[string]any{}
	if err := toml.Unmarshal(text, &values); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, _ := at.Position()
			return fmt.Errorf("%s:%d: %s", path, row, strings.TrimPrefix(at.Error(), "toml: "))
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	keys, err := keysOf(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var wrong faults
	for _, k := range keys {
		at := fmt.Sprintf("%s:%d", path, k.line)
		if err := setKey(k, values[k.name], f, from, at); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", at, access.Redacted(k.name), err))
		}
	}
	return wrong.orNil()
}

// setKey sets a flag to the value of a key. If the command line or a variable has set the flag
// already, setKey only checks the value.
func setKey(k fileKey, value any, f *pflag.FlagSet, from sources, at string) error {
	flag := f.Lookup(k.name)
	switch {
	case k.table:
		return errors.New("tables are not supported: write every key at the top level, by the name of its flag")
	case flag == nil || !isKey(flag):
		if best := similar(k.name, f, isKey); best != "" {
			return fmt.Errorf("unknown setting; did you mean %q?", best)
		}
		return errors.New("unknown setting")
	}
	list, err := inFile(flag, value)
	if err != nil {
		return err
	}
	if _, set := from[k.name]; set {
		return nil
	}
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		err = slice.Replace(list)
		flag.Changed = true
	} else {
		err = f.Set(k.name, list[0])
	}
	if err != nil {
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			err = bad.Unwrap()
		}
		return err
	}
	from[k.name] = source{byFile, at}
	return nil
}

// fileKey is a key or a table of the file.
type fileKey struct {
	name  string
	line  int
	table bool
}

// keysOf lists the keys of a valid file with their lines.
func keysOf(text []byte) ([]fileKey, error) {
	var keys []fileKey
	var p unstable.Parser
	p.Reset(text)
	inTable := false
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.KeyValue && e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		isTable := e.Kind != unstable.KeyValue
		if inTable && !isTable {
			continue // setKey refuses the whole table, so its keys do not matter
		}
		inTable = isTable
		var parts []string
		line := 0
		for it := e.Key(); it.Next(); {
			if line == 0 {
				line = p.Shape(it.Node().Raw).Start.Line
			}
			parts = append(parts, string(it.Node().Data))
		}
		keys = append(keys, fileKey{strings.Join(parts, "."), line, isTable})
	}
	return keys, p.Error()
}

// inFile converts a value of the file to the strings that are passed to its flag. This is one
// string, unless the flag takes a list. Errors do not repeat values, because some are secret.
func inFile(f *pflag.Flag, value any) ([]string, error) {
	switch v := value.(type) {
	case bool:
		if f.Value.Type() == "bool" {
			return []string{strconv.FormatBool(v)}, nil
		}
	case int64:
		if f.Value.Type() == "int" {
			return []string{strconv.FormatInt(v, 10)}, nil
		}
	case string:
		switch f.Value.Type() {
		case "string":
			return []string{v}, nil
		case "duration":
			_, err := time.ParseDuration(v)
			return []string{v}, err
		}
		if _, ok := f.Value.(pflag.SliceValue); ok {
			if v == "" {
				return []string{}, nil
			}
			return strings.Split(v, ","), nil
		}
	case []any:
		if _, ok := f.Value.(pflag.SliceValue); !ok {
			break
		}
		list := make([]string, 0, len(v))
		for i, element := range v {
			s, ok := element.(string)
			if !ok {
				return nil, fmt.Errorf("element %d is not a string", i+1)
			}
			list = append(list, s)
		}
		return list, nil
	}
	return nil, fmt.Errorf("not %s", wants(f))
}

// wants describes the values that are valid for a key.
func wants(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "int":
		return "an integer"
	case "duration":
		return `a duration in quotes, such as "2s"`
	}
	if _, ok := f.Value.(pflag.SliceValue); ok {
		return "a list of strings"
	}
	return "a string in quotes"
}

// similar returns the name of the flag that is most similar to an unknown name, or "" if there is
// none. It considers only the flags for which fits returns true.
func similar(name string, f *pflag.FlagSet, fits func(*pflag.Flag) bool) string {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	best, least := "", min(3, len(name)) // at most two edits, and fewer than the name has letters
	f.VisitAll(func(f *pflag.Flag) {
		d := distance(name, f.Name)
		if len(name) > 2 && (strings.HasPrefix(f.Name, name) || strings.HasPrefix(name, f.Name+"-")) {
			d = min(d, 2) // such as perm for permissions, or retention-seconds for retention
		}
		if fits(f) && d < least {
			best, least = f.Name, d
		}
	})
	return best
}

// distance returns the Levenshtein distance: the minimum number of single-letter edits that turn a
// into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			change := before[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, before[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
