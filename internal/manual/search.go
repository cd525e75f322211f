package manual

import (
	"encoding/json"
	"html"
	"regexp"
	"strings"
)

// indexedPage is a page in the search index. The script manual.js reads the index.
type indexedPage struct {
	Path     string           `json:"path"`
	Name     string           `json:"name"`
	Sections []indexedSection `json:"sections"`
}

// indexedSection is a part of a page, from one heading to the next.
type indexedSection struct {
	ID     string `json:"id"` // anchor; empty for the beginning of the page
	Title  string `json:"title"`
	Within string `json:"within,omitempty"` // title of the section around this one
	Text   string `json:"text"`
}

var (
	// begin matches what begins a section: a heading, or the element around an error code. The
	// anchor of an error code is at that element, and not at the heading.
	begin = regexp.MustCompile(`<h([1-3])(?: id="([^"]+)")?>(.*?)</h[1-3]>|<section class="fault" id="([^"]+)">`)

	unread = regexp.MustCompile(`(?s)<svg .*?</svg>|<figcaption>.*?</figcaption>|<thead>.*?</thead>|<a class="anchor".*?</a>`)
	apart  = regexp.MustCompile(`</(?:td|th|p|li|pre|h[1-6])>|<br>`) // tags between two words
	tag    = regexp.MustCompile(`<[^>]*>`)
)

// indexed splits a page into its sections.
func indexed(l leaf, c content) indexedPage {
	page := indexedPage{Path: l.path, Name: l.name}
	body := unread.ReplaceAllString(string(c.body), "")
	now, from := indexedSection{Title: l.name}, 0
	end := func(at int) {
		if now.Text = words(body[from:at]); now.Text != "" || now.ID != "" {
			page.Sections = append(page.Sections, now)
		}
	}
	outer := ""
	for _, m := range begin.FindAllStringSubmatchIndex(body, -1) {
		group := func(n int) string {
			if m[2*n] < 0 {
				return ""
			}
			return body[m[2*n]:m[2*n+1]]
		}
		level, id, title, code := group(1), group(2), words(group(3)), group(4)
		switch {
		case code != "":
			end(m[0])
			now = indexedSection{ID: code, Title: code}
		case level == "1":
			end(m[0])
			now = indexedSection{Title: title}
		case level == "2" && id != "":
			end(m[0])
			now, outer = indexedSection{ID: id, Title: title}, title
		case id != "":
			end(m[0])
			now = indexedSection{ID: id, Title: title, Within: outer}
		}
		from = m[1]
	}
	end(len(body))
	return page
}

// words returns the text of HTML without markup, as words with one space between them.
func words(s string) string {
	s = tag.ReplaceAllString(apart.ReplaceAllString(s, " "), "")
	return strings.Join(strings.Fields(html.UnescapeString(s)), " ")
}

// listOfPages builds the page /docs/search: all pages with their sections. Readers without JavaScript
// get there when they search.
func listOfPages(pages []indexedPage) (content, error) {
	return table("search", "All pages", pages, nil)
}

// searchIndex returns the file that the script loads when a reader begins to search.
func searchIndex(pages []indexedPage) (*file, error) {
	text, err := json.Marshal(pages)
	return newFile("application/json", text), err
}
