package manual

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/png"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/util"

	"weir/docs"
)

// pictures are where the manual's pictures are, among the papers and under /docs.
const pictures = "images"

// picturePath is where a picture is served.
func picturePath(name string) string { return "/docs/" + name }

// addPictures adds every picture to the files of the manual.
func addPictures(files map[string]*file) error {
	all, err := fs.Glob(docs.Files, pictures+"/*.png")
	for _, name := range all {
		body, err := docs.Files.ReadFile(name)
		if err != nil {
			return err
		}
		files[picturePath(name)] = &file{contentType: "image/png", body: body, etag: etag(body)}
	}
	return err
}

// image puts a drawing or a picture into the page. What it shows must be said in words too.
func (blocks) image(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	img := n.(*ast.Image)
	name, says := string(img.Destination), plain(img, source)
	if strings.TrimSpace(says) == "" {
		return ast.WalkStop, fmt.Errorf("the picture %s has no text for those who do not see it", name)
	}
	show := picture
	if path.Ext(name) == ".svg" {
		show = drawing
	}
	out, err := show(name, html.EscapeString(says))
	if err != nil {
		return ast.WalkStop, err
	}
	w.WriteString(out)
	return ast.WalkSkipChildren, nil
}

var ownStyle = regexp.MustCompile(`(?s)<style>.*?</style>\s*`)

// drawing is part of the page, where it has the colours of the page. The style that it has for itself stays out.
func drawing(name, says string) (string, error) {
	text, err := docs.Files.ReadFile(name)
	if err != nil {
		return "", err
	}
	svg := ownStyle.ReplaceAllString(string(text), "")
	return strings.TrimSpace(strings.Replace(svg, "<svg ", fmt.Sprintf("<svg class=\"drawing\" role=\"img\" aria-label=\"%s\" ", says), 1)), nil
}

// picture is one that the page loads, with its size, so that nothing jumps when it comes. One with -dark in its name beside it
// is for dark pages.
func picture(name, says string) (string, error) {
	address, body, err := readPicture(name)
	if err != nil {
		return "", err
	}
	size, err := png.DecodeConfig(bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	img := fmt.Sprintf(`<img class="picture" src="%s" alt="%s" width="%d" height="%d" loading="lazy">`, address, says, size.Width, size.Height)
	dark, _, err := readPicture(strings.TrimSuffix(name, ".png") + "-dark.png")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return img, nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf(`<picture><source srcset="%s" media="(prefers-color-scheme: dark)">%s</picture>`, dark, img), nil
}

// readPicture reads a picture. Its address changes with what it shows, so that a browser may keep what it got.
func readPicture(name string) (address string, body []byte, err error) {
	if path.Dir(name) != pictures || path.Ext(name) != ".png" {
		return "", nil, fmt.Errorf("%s is not a PNG of docs/%s", name, pictures)
	}
	body, err = docs.Files.ReadFile(name)
	return picturePath(name) + "?v=" + etag(body), body, err
}
