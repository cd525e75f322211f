package manual

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"

	"weir/docs"
)

// leaf is a page of the manual.
type leaf struct {
	path   string
	name   string // in the navigation
	source string // Markdown document in weir/docs; empty if the page is generated from a table
}

type chapter struct {
	name   string
	leaves []leaf
}

// commandLine is the path of the page about the command line. Its end is generated from the help
// texts.
const commandLine = "/docs/cli"

// chapters lists all pages of the manual in reading order.
var chapters = []chapter{
	{"Start", []leaf{
		{"/docs", "Getting started", "manual/index.md"},
		{"/docs/concepts", "Concepts", "manual/concepts.md"},
	}},
	{"Use", []leaf{
		{"/docs/publishing", "Publishing", "manual/publishing.md"},
		{"/docs/subscribing", "Subscribing", "manual/subscribing.md"},
		{"/docs/durable", "Durable Streams", "manual/durable.md"},
		{"/docs/ai-chat", "Resumable AI chats", "manual/ai-chat.md"},
		{commandLine, "Command line", "cli.md"},
		{"/docs/keys", "Keys and scopes", "manual/keys.md"},
		{"/docs/reference", "HTTP reference", ""},
		{"/docs/errors", "Errors", ""},
	}},
	{"Run", []leaf{
		{"/docs/operating", "Operating", "operating.md"},
		{"/docs/cluster", "More than one node", "cluster.md"},
		{"/docs/dashboard", "Dashboard", "manual/dashboard.md"},
		{"/docs/benchmarks", "Benchmarks", "benchmarks.md"},
	}},
	{"More", []leaf{
		{"/docs/decisions", "Behaviour in detail", "decisions.md"},
		{"/docs/comparison", "Comparison", "manual/comparison.md"},
		{"/docs/faq", "Questions", "manual/faq.md"},
	}},
}

// dashboardPages maps pages of the manual to the pages of the dashboard that they link to. All
// other pages of the manual link to the overview.
var dashboardPages = map[string]link{
	"/docs/concepts":    {Path: "/dashboard/streams", Name: "Streams"},
	"/docs/publishing":  {Path: "/dashboard/streams", Name: "Streams"},
	"/docs/subscribing": {Path: "/dashboard/streams", Name: "Streams"},
	"/docs/durable":     {Path: "/dashboard/streams", Name: "Streams"},
	"/docs/keys":        {Path: "/dashboard/keys", Name: "Keys"},
	"/docs/reference":   {Path: "/dashboard/requests", Name: "Requests"},
	"/docs/errors":      {Path: "/dashboard/requests", Name: "Requests"},
}

// dashboardPage returns the page of the dashboard that the page at path links to, or nil if there
// is no dashboard.
func (o Options) dashboardPage(path string) *link {
	if !o.Dashboard {
		return nil
	}
	l, ok := dashboardPages[path]
	if !ok {
		l = link{Path: "/dashboard", Name: "Overview"}
	}
	return &l
}

// leaves returns all pages of the navigation in reading order.
func leaves() []leaf {
	var all []leaf
	for _, c := range chapters {
		all = append(all, c.leaves...)
	}
	return all
}

// missing is the key under which build stores the page for unknown addresses.
const missing = "missing"

// content is a page without its layout.
type content struct {
	title    string
	sections []section // entries of the list "On this page"
	body     template.HTML
}

type section struct{ ID, Name string }

//go:embed page.html
var pageTemplate string

var layout = template.Must(template.New("page").Parse(pageTemplate))

// build generates all files of the manual except /openapi.json, and returns them by URL path.
func build(o Options, d *description) (map[string]*file, error) {
	files := map[string]*file{
		"/docs/style.css": newFile("text/css; charset=utf-8", style),
		"/docs/manual.js": newFile("text/javascript; charset=utf-8", script),
	}
	if err := addPictures(files); err != nil {
		return nil, err
	}
	all := leaves()
	var index []indexedPage
	for i, l := range all {
		c, err := l.content(o, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.path, err)
		}
		c.body = o.withAddresses(c.body)
		index = append(index, indexed(l, c))
		v := view{Title: c.title, Dashboard: o.dashboardPage(l.path), Chapters: navigation(l.path), Sections: c.sections, Body: c.body}
		if i > 0 {
			v.Before = &link{all[i-1].path, all[i-1].name, false}
		}
		if i+1 < len(all) {
			v.After = &link{all[i+1].path, all[i+1].name, false}
		}
		if files[l.path], err = v.file(); err != nil {
			return nil, fmt.Errorf("%s: %w", l.path, err)
		}
	}
	found, err := searchIndex(index)
	if err != nil {
		return nil, err
	}
	files["/docs/search.json"] = found
	list, err := listOfPages(index)
	if err != nil {
		return nil, err
	}
	if files["/docs/search"], err = (view{Title: list.title, Dashboard: o.dashboardPage(""), Chapters: navigation(""), Body: list.body}).file(); err != nil {
		return nil, err
	}
	lost := view{Title: "Page not found", Dashboard: o.dashboardPage(""), Chapters: navigation(""), Body: "<h1>Page not found</h1>\n<p>The manual has no page at this address. <a href=\"/docs/search\">Search</a> it.</p>"}
	files[missing], err = lost.file()
	return files, err
}

var codeBlock = regexp.MustCompile(`(?s)<pre tabindex="0"><code>.*?</code></pre>`)

// withAddresses puts the addresses of this server into the blocks of code, so that readers can run
// them as they are. The documents have the default addresses there. Addresses outside of blocks
// stay: the text explains that they are the defaults.
func (o Options) withAddresses(body template.HTML) template.HTML {
	var pairs []string
	for standard, real := range map[string]string{"http://127.0.0.1:8080": o.URL, "https://127.0.0.1:8443": o.HTTPS} {
		if real != "" {
			pairs = append(pairs, standard, html.EscapeString(real))
		}
	}
	replace := strings.NewReplacer(pairs...).Replace
	return template.HTML(codeBlock.ReplaceAllStringFunc(string(body), replace))
}

// content builds the contents of the page: from its table, from its Markdown document, or from both.
func (l leaf) content(o Options, d *description) (content, error) {
	switch l.path {
	case "/docs/reference":
		return reference(d)
	case "/docs/errors":
		return faults(o.Faults)
	}
	text, err := docs.Files.ReadFile(l.source)
	if err != nil {
		return content{}, err
	}
	c, err := render(l.source, text)
	if err == nil && l.path == commandLine {
		return withCommands(c, o.Commands)
	}
	return c, err
}

// view is the data for the layout template.
type view struct {
	Title         string
	Dashboard     *link
	Chapters      []shownChapter
	Sections      []section
	Body          template.HTML
	Before, After *link
}

type shownChapter struct {
	Name  string
	Links []link
}

type link struct {
	Path, Name string
	Here       bool
}

// navigation returns the list of all pages, with the page at path marked as the current one.
func navigation(path string) []shownChapter {
	var shown []shownChapter
	for _, c := range chapters {
		s := shownChapter{Name: c.name}
		for _, l := range c.leaves {
			s.Links = append(s.Links, link{l.path, l.name, l.path == path})
		}
		shown = append(shown, s)
	}
	return shown
}

func (v view) file() (*file, error) {
	var b bytes.Buffer
	if err := layout.Execute(&b, v); err != nil {
		return nil, err
	}
	return newFile("text/html; charset=utf-8", b.Bytes()), nil
}
