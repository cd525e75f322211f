package enginetest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every sentence that a case quotes must be in package engine, word for word.
func TestQuotations(t *testing.T) {
	source, err := os.ReadFile("../engine.go")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^\s*//|//`).ReplaceAllString(string(source), " ")
	text = strings.Join(strings.Fields(text), " ")
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] {
			t.Errorf("two cases are named %q", c.name)
		}
		seen[c.name] = true
		if len(c.promise) == 0 {
			t.Errorf("%s: quotes no promise", c.name)
		}
		for _, p := range c.promise {
			if !strings.Contains(text, p) {
				t.Errorf("%s: package engine does not say %q", c.name, p)
			}
		}
	}
}
