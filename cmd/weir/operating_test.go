package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var row = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (.*?) \\|")

// docs/operating.md has one row for every flag of weir serve, with its default, and no other rows.
func TestFlagsInManual(t *testing.T) {
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(operating(t), -1) {
		rows[m[1]] = m[2]
	}
	serveCommand().Flags().VisitAll(func(f *pflag.Flag) {
		said, ok := rows[f.Name]
		delete(rows, f.Name)
		want := "`" + strings.Trim(f.DefValue, "[]") + "`"
		switch {
		case !ok:
			t.Errorf("docs/operating.md has no row for --%s", f.Name)
		case want == "``" && (said == "none" || strings.Contains(f.Usage, "(default: ")):
		case said != want:
			t.Errorf("docs/operating.md says that the default of --%s is %s, but it is %s", f.Name, said, want)
		}
	})
	for name := range rows {
		t.Errorf("docs/operating.md has a row for --%s, but weir serve has no such flag", name)
	}
}

// docs/operating.md lists exactly the existing commands. The flags of each command are in
// docs/operating.md or in docs/cli.md.
func TestCommandsInManual(t *testing.T) {
	text := operating(t)
	cli, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	root := program(io.Discard, io.Discard)
	root.InitDefaultHelpCmd() // cobra itself adds help and completion only when a command runs
	root.InitDefaultCompletionCmd()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		known = append(known, c.CommandPath())
		if c.HasSubCommands() && c.Name() != "completion" {
			for _, sub := range c.Commands() {
				visit(sub)
			}
			return
		}
		if !strings.Contains(text, "\n| `"+strings.TrimSuffix(c.CommandPath()+strings.TrimPrefix(c.Use, c.Name()), " [COMMAND]")+"` |") {
			t.Errorf("docs/operating.md has no row for `%s`", c.UseLine())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !strings.Contains(text, "`--"+f.Name) && !strings.Contains(string(cli), "`--"+f.Name) {
				t.Errorf("neither docs/operating.md nor docs/cli.md mentions --%s of %s", f.Name, c.CommandPath())
			}
		})
	}
	visit(root)
	for _, m := range regexp.MustCompile("(?m)[`|^](weir( [a-z]+)+)").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("docs/operating.md names `%s`, which is not a command", m[1])
		}
	}
}

func operating(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
