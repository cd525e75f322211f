package manual

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown supports what the documents use: CommonMark, tables, and headings with ids. It does not
// pass raw HTML through.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{}, 100))),
)

// render turns the Markdown document of the given name into a page. Links to documents that are
// pages of the manual point to those pages. Links to other files of the project become plain text,
// because a reader of the manual does not have those files.
func render(source string, document []byte) (content, error) {
	tree := markdown.Parser().Parse(text.NewReader(document))
	var c content
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			name := plain(n, document)
			switch n.Level {
			case 1:
				c.title = name
			case 2:
				c.sections = append(c.sections, section{fmt.Sprintf("%s", id), name})
			}
		case *ast.Link:
			to, err := destination(source, string(n.Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			n.Destination = []byte(to)
		case *ast.Image:
			n.Destination = []byte(path.Join(path.Dir(source), string(n.Destination)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return content{}, err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, document, tree); err != nil {
		return content{}, err
	}
	c.body = template.HTML(finish(b.String()))
	if c.title == "" {
		return content{}, fmt.Errorf("%s: no heading of level 1", source)
	}
	return c, nil
}

// fragment renders a piece of Markdown that is not a whole page.
func fragment(s string) template.HTML {
	var b bytes.Buffer
	if err := markdown.Convert([]byte(s), &b); err != nil {
		return template.HTML(html.EscapeString(s))
	}
	return template.HTML(finish(b.String()))
}

// inline renders one line of Markdown without the paragraph element around it.
func inline(s string) template.HTML {
	out := strings.TrimSpace(string(fragment(s)))
	return template.HTML(strings.TrimSuffix(strings.TrimPrefix(out, "<p>"), "</p>"))
}

// plain returns the text of a node without markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// destination translates a link of a document into a link of the manual. It returns "" for a link
// to a file that is not part of the manual.
func destination(source, to string) (string, error) {
	name, anchor, _ := strings.Cut(to, "#")
	switch {
	case name == "" || strings.Contains(to, "://"):
		return to, nil
	case strings.HasPrefix(name, "/"):
		for _, c := range chapters {
			for _, l := range c.leaves {
				if l.path == name {
					return to, nil
				}
			}
		}
		if name == "/openapi.json" || name == "/client.js" {
			return to, nil
		}
		return "", fmt.Errorf("link to %s: the manual has no such page", to)
	}
	file := path.Join(path.Dir(source), name)
	for _, c := range chapters {
		for _, l := range c.leaves {
			if l.source == file {
				if anchor != "" {
					anchor = "#" + anchor
				}
				return l.path + anchor, nil
			}
		}
	}
	return "", nil
}

var (
	heading = regexp.MustCompile(`<h([2-6]) id="([^"]+)">(.*)</h[2-6]>`)
	nowhere = regexp.MustCompile(`<a href="">(.*?)</a>`)
	word    = regexp.MustCompile(`<code>([^<\s]{1,30})</code>`)
)

// finish completes rendered HTML: it gives every heading a link to its own anchor, makes tables
// scrollable, keeps names such as --data on one line, and removes links whose target is not part of
// the manual.
func finish(s string) string {
	s = heading.ReplaceAllString(s, `<h$1 id="$2">$3 <a class="anchor" href="#$2" aria-label="Link to this section">#</a></h$1>`)
	s = word.ReplaceAllString(s, `<code class="word">$1</code>`)
	s = strings.ReplaceAll(s, "<table", `<div class="table" role="group" tabindex="0"><table`)
	s = strings.ReplaceAll(s, "</table>", "</table></div>")
	return nowhere.ReplaceAllString(s, "$1")
}

// blocks renders code blocks and images, for which the default HTML of goldmark is not enough.
type blocks struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (b blocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, b.code)
	r.Register(ast.KindImage, b.image)
}

// languages maps the language of a code block to the label shown above it.
var languages = map[string]string{"sh": "shell", "go": "Go", "js": "JavaScript", "python": "Python", "html": "HTML", "json": "JSON", "toml": "TOML", "text": "text"}

func (blocks) code(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := n.(*ast.FencedCodeBlock)
	info := ""
	if block.Info != nil {
		info = string(block.Info.Segment.Value(source))
	}
	words := strings.Fields(info)
	class, label := "code", "text"
	if len(words) > 0 {
		if label = languages[words[0]]; label == "" {
			return ast.WalkStop, fmt.Errorf("code block: unknown language %q", words[0])
		}
	}
	if len(words) > 1 && strings.HasPrefix(words[1], "file=") {
		label = strings.TrimPrefix(words[1], "file=")
	}
	if len(words) > 1 && words[1] == "output" {
		class, label = "code output", "output"
	}
	if len(words) > 1 && strings.HasPrefix(words[1], "browser=") {
		class, label = "code output", "in the page"
	}
	fmt.Fprintf(w, "<figure class=\"%s\"><figcaption>%s</figcaption><pre tabindex=\"0\"><code>", class, label)
	for i := range block.Lines().Len() {
		line := block.Lines().At(i)
		w.WriteString(html.EscapeString(string(line.Value(source))))
	}
	w.WriteString("</code></pre></figure>\n")
	return ast.WalkSkipChildren, nil
}
