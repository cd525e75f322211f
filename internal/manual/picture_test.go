package manual

import (
	"bytes"
	"html"
	"image/png"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/docs"
)

var (
	anyImage   = regexp.MustCompile(`<img ([^>]*)>`)
	anySource  = regexp.MustCompile(`<source srcset="([^"]+)" media="\(prefers-color-scheme: dark\)">`)
	attributes = regexp.MustCompile(`([a-z]+)="([^"]*)"`)
)

// TestPictures checks every image of every page: it is served as a PNG that browsers can cache for
// good, it has an alternative text and the right size, and its dark variant has the same size. It
// also fails if an image is not used by any page.
func TestPictures(t *testing.T) {
	h := sample(t)
	shown := map[string]bool{}
	look := func(page, address string) (width, height int) {
		path, _, _ := strings.Cut(address, "?")
		shown[path] = true
		a := ask(h, "GET", address, "Accept-Encoding", "gzip")
		if a.Code != 200 || a.Header().Get("Content-Type") != "image/png" || a.Header().Get("Content-Encoding") != "" ||
			a.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" || a.Header().Get("Etag") == "" {
			t.Errorf("%s: %s: %d %v", page, address, a.Code, a.Header())
		}
		size, err := png.DecodeConfig(bytes.NewReader(a.Body.Bytes()))
		if err != nil {
			t.Errorf("%s: %s: %v", page, address, err)
		}
		return size.Width, size.Height
	}
	for _, p := range allPages() {
		body := ask(h, "GET", p).Body.String()
		var sizes [][2]string
		for _, m := range anyImage.FindAllStringSubmatch(body, -1) {
			has := map[string]string{}
			for _, a := range attributes.FindAllStringSubmatch(m[1], -1) {
				has[a[1]] = html.UnescapeString(a[2])
			}
			width, height := look(p, has["src"])
			sizes = append(sizes, [2]string{has["width"], has["height"]})
			if len(has["alt"]) < 20 || has["width"] != strconv.Itoa(width) || has["height"] != strconv.Itoa(height) {
				t.Errorf("%s: %s", p, m[0])
			}
		}
		for i, m := range anySource.FindAllStringSubmatch(body, -1) {
			if width, height := look(p, m[1]); sizes[i] != [2]string{strconv.Itoa(width), strconv.Itoa(height)} {
				t.Errorf("%s: %s does not have the size of the light image", p, m[1])
			}
		}
	}
	if len(shown) == 0 {
		t.Error("no page has an image")
	}
	total := 0
	all, err := fs.Glob(docs.Files, "images/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if !shown[picturePath(name)] {
			t.Errorf("no page uses %s", name)
		}
		body, err := docs.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		total += len(body)
	}
	if total > 600<<10 {
		t.Errorf("the images are %d bytes, want at most 600 KiB: they are part of every binary", total)
	}
}

// TestPictureChanges checks that browsers may not cache an image for good if its address contains
// the hash of another version. It also checks that an unchanged image is not sent again.
func TestPictureChanges(t *testing.T) {
	h := sample(t)
	const path = "/docs/images/dashboard-overview.png"
	a := ask(h, "GET", path+"?v=0123456789abcdef")
	if a.Code != 200 || a.Header().Get("Cache-Control") != "public, no-cache" {
		t.Errorf("%d %v", a.Code, a.Header())
	}
	if a := ask(h, "GET", path, "If-None-Match", a.Header().Get("Etag")); a.Code != 304 || a.Body.Len() > 0 {
		t.Errorf("an unchanged image: status %d, want 304", a.Code)
	}
	if a := ask(h, "GET", "/docs/images/"); a.Code != 404 {
		t.Errorf("the directory of the images: status %d, want 404", a.Code)
	}
}

func TestBadPictures(t *testing.T) {
	for text, want := range map[string]string{
		"# A\n\n![](../images/dashboard-overview.png)\n":    "has no alternative text",
		"# A\n\n![some words](../images/none.png)\n":        "file does not exist",
		"# A\n\n![some words](none.svg)\n":                  "file does not exist",
		"# A\n\n![some words](../openapi.yaml)\n":           "is not a PNG in docs/images",
		"# A\n\n![some words](https://example.com/a.png)\n": "is not a PNG in docs/images",
	} {
		if _, err := render("manual/a.md", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	c, err := render("operating.md", []byte("# A\n\n![The \"keys\" & more](images/dashboard-keys.png)\n"))
	if err != nil || !strings.Contains(string(c.body), `alt="The &#34;keys&#34; &amp; more"`) {
		t.Errorf("%v\n%s", err, c.body)
	}
}

// TestDrawings checks that the style sheet of the manual has a rule for every class of a drawing,
// because a shape without a rule is black. It also checks that hollow shapes stay hollow: a class
// may mean something else in another drawing.
func TestDrawings(t *testing.T) {
	all, err := fs.Glob(docs.Files, "manual/*.svg")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d drawings: %v", len(all), err)
	}
	for _, name := range all {
		text, err := docs.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		own := ownStyle.Find(text)
		for _, m := range regexp.MustCompile(` class="([^"]+)"`).FindAllSubmatch(text, -1) {
			rule := append(append([]byte("."), m[1]...), " {"...)
			if !bytes.Contains(style, append([]byte(".drawing "), rule...)) || !bytes.Contains(own, rule) {
				t.Errorf("%s: the class %s has no rule in style.css or in the file", name, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`(?s)\.([a-z]+) \{[^}]*\}`).FindAllSubmatch(own, -1) {
			hollow := []byte("fill: none")
			rule := regexp.MustCompile(`\.drawing \.` + string(m[1]) + ` \{[^}]*\}`).Find(style)
			if bytes.Contains(m[0], hollow) && !bytes.Contains(rule, hollow) {
				t.Errorf("%s: shapes of class %s are not filled, but style.css has %s", name, m[1], rule)
			}
		}
	}
}
