package main

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/api"
	"weir/internal/service"
	"weir/internal/settings"
)

// The manual explains every error code and every command, and all links to these explanations work.
func TestManual(t *testing.T) {
	s, err := settings.Parse("--data", t.TempDir(), "--http", "127.0.0.1:0", "--https", "off", "--metrics", "off", "--demo=false")
	if err != nil {
		t.Fatal(err)
	}
	svc, err := service.Start(t.Context(), service.Options{Settings: s, Logger: slog.New(slog.DiscardHandler), Commands: commandsForManual()})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Stop(0)
	page := func(path string) string {
		status, body, err := get(svc.URL() + path)
		if err != nil || status != 200 {
			t.Errorf("%s: %d, %v", path, status, err)
		}
		return body
	}
	anchors := map[string][]string{}
	for _, path := range []string{"/docs/errors", "/docs/cli"} {
		for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page(path), -1) {
			anchors[path] = append(anchors[path], m[1])
		}
	}
	for _, f := range api.Faults() {
		if !slices.Contains(anchors["/docs/errors"], string(f.Code)) {
			t.Errorf("%s is not explained", f.Code)
		}
	}
	for _, c := range commandsForManual() {
		if !slices.Contains(anchors["/docs/cli"], strings.ReplaceAll(c.Use, " ", "-")) || c.Short == "" {
			t.Errorf("%s is not explained", c.Use)
		}
	}
	read := map[string]bool{}
	for todo := []string{"/docs"}; len(todo) > 0; todo = todo[1:] {
		if read[todo[0]] {
			continue
		}
		read[todo[0]] = true
		for _, m := range regexp.MustCompile(`href="(/docs[a-z/-]*)(?:#([^"]*))?"`).FindAllStringSubmatch(page(todo[0]), -1) {
			todo = append(todo, m[1])
			if known := anchors[m[1]]; m[2] != "" && known != nil && !slices.Contains(known, m[2]) {
				t.Errorf("%s: the link to %s#%s leads nowhere", todo[0], m[1], m[2])
			}
		}
	}
	if len(read) < 13 {
		t.Errorf("only %d pages were found: %v", len(read), read)
	}
}
