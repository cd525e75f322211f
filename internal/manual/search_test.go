package manual

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readIndex returns the search index.
func readIndex(t *testing.T) []indexedPage {
	t.Helper()
	a := ask(sample(t), "GET", "/docs/search.json")
	var index []indexedPage
	if err := json.Unmarshal(a.Body.Bytes(), &index); err != nil || a.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v %v", err, a.Header())
	}
	return index
}

// TestSearchIndex checks that the index has every heading of every page, with text and without
// markup.
func TestSearchIndex(t *testing.T) {
	h := sample(t)
	index := readIndex(t)
	anchored := regexp.MustCompile(`<(?:h[23]|section class="fault") id="([^"]+)"`)
	markup := regexp.MustCompile(`class="|tabindex=|aria-label=|&(?:lt|gt|amp|#34|quot);`)
	for i, l := range leaves() {
		page := index[i]
		if page.Path != l.path || page.Name != l.name {
			t.Fatalf("entry %d is %s %q, want %s %q", i, page.Path, page.Name, l.path, l.name)
		}
		var want, got []string
		for _, m := range anchored.FindAllStringSubmatch(ask(h, "GET", l.path).Body.String(), -1) {
			want = append(want, m[1])
		}
		for _, s := range page.Sections {
			if s.ID != "" {
				got = append(got, s.ID)
			}
			if s.Title == "" || strings.HasSuffix(s.Title, "#") || markup.MatchString(s.Title) || markup.MatchString(s.Text) {
				t.Errorf("%s#%s: %q: %s", l.path, s.ID, s.Title, s.Text)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the index has %q, the page %q", l.path, got, want)
		}
	}
}

func TestIndexedSections(t *testing.T) {
	c, err := render("manual/a.md", []byte("# Title\n\nOne `--flag <x>`\n\n| a | b |\n|---|---|\n| c | d |\n\n## Second *part*\n\n### Deep\n\n```sh\nls & echo\n```\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []indexedSection{
		{"", "Title", "", "One --flag <x> c d"},
		{"second-part", "Second part", "", ""},
		{"deep", "Deep", "Second part", "ls & echo"},
	}
	if got := indexed(leaf{path: "/docs/a", name: "A"}, c); !slices.Equal(got.Sections, want) {
		t.Errorf("%+v", got)
	}
	for _, page := range readIndex(t) {
		if page.Path != "/docs/errors" {
			continue
		}
		if want := (indexedSection{"rate_limited", "rate_limited", "", "429 Too Many Requests · rate_limit_error · with retry-after Too <many>. What to do: Wait."}); !slices.Contains(page.Sections, want) {
			t.Errorf("%+v", page.Sections)
		}
	}
}

// TestListOfPages checks the page that readers without JavaScript get when they search: it links to
// every page.
func TestListOfPages(t *testing.T) {
	a := ask(sample(t), "GET", "/docs/search?q=keys")
	main := a.Body.String()
	main = main[strings.Index(main, "<main"):]
	for _, l := range leaves() {
		if !strings.Contains(main, `<h2><a href="`+l.path+`">`+l.name+`</a></h2>`) {
			t.Errorf("%s is not in the list", l.path)
		}
	}
	if !strings.Contains(main, `<li><a href="/docs/keys#revoke-and-rotate">Revoke and rotate</a></li>`) {
		t.Errorf("a section is not in the list:\n%s", main)
	}
}
