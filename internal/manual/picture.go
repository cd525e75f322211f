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

// pictures is the directory of the images, both in weir/docs and under /docs.
const pictures = "images"

// picturePath returns the URL path of an image.
func picturePath(name string) string { return "/docs/" + name }

// addPictures adds all images to the files of the manual, without gzip: a PNG is compressed already.
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

// image renders an image: an SVG drawing becomes part of the page, a PNG is loaded by the page. It
// fails if the image has no alternative text.
func (blocks) image(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	img := n.(*ast.Image)
	name, says := string(img.Destination), plain(img, source)
	if strings.TrimSpace(says) == "" {
		return ast.WalkStop, fmt.Errorf("image %s has no alternative text", name)
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

// drawing returns the SVG element of a drawing. An SVG file has its own style element, for viewing
// the file alone. drawing removes that element, because inside a page the page's style sheet sets
// the colours.
func drawing(name, says string) (string, error) {
	text, err := docs.Files.ReadFile(name)
	if err != nil {
		return "", err
	}
	svg := ownStyle.ReplaceAllString(string(text), "")
	return strings.TrimSpace(strings.Replace(svg, "<svg ", fmt.Sprintf("<svg class=\"drawing\" role=\"img\" aria-label=\"%s\" ", says), 1)), nil
}

// picture returns an img element for a PNG. It states the size of the image, so that the layout
// does not shift when the image arrives. If there is a second file with -dark in its name, browsers
// in dark mode load that one.
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

// readPicture reads an image. The address that it returns contains a hash of the image, so that
// browsers can cache the image for good.
func readPicture(name string) (address string, body []byte, err error) {
	if path.Dir(name) != pictures || path.Ext(name) != ".png" {
		return "", nil, fmt.Errorf("%s is not a PNG in docs/%s", name, pictures)
	}
	body, err = docs.Files.ReadFile(name)
	return picturePath(name) + "?v=" + etag(body), body, err
}
