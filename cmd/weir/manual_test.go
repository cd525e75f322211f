package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/api"
)

// The manual of the program explains every code and every command, and every link of every page to one of them leads there.
func TestManual(t *testing.T) {
	h := withManual(http.NotFoundHandler())
	page := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
		return w.Body.String()
	}
	anchors := map[string][]string{}
	for _, path := range []string{"/docs/errors", "/docs/command-line"} {
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
		if !slices.Contains(anchors["/docs/command-line"], strings.ReplaceAll(c.Use, " ", "-")) || c.Short == "" {
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
