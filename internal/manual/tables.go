package manual

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strings"
)

//go:embed tables.html
var tablesTemplate string

// tables holds the templates of the pages that are not written in Markdown.
var tables = template.Must(template.New("tables").Funcs(template.FuncMap{
	"markdown": fragment, "inline": inline, "reason": http.StatusText,
	"paragraphs": paragraphs,
	"anchor":     func(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") },
}).Parse(tablesTemplate))

func table(name, title string, data any, sections []section) (content, error) {
	var b bytes.Buffer
	err := tables.ExecuteTemplate(&b, name, data)
	return content{title: title, body: template.HTML(finish(b.String())), sections: sections}, err
}

// faults builds the page that every doc_url points to. It has an anchor for every error code, with
// its meaning and what to do about it.
func faults(all []Fault) (content, error) {
	var sections []section
	for _, f := range all {
		sections = append(sections, section{f.Code, f.Code})
	}
	return table("errors", "Errors", all, sections)
}

// withCommands adds the help texts of the program to the page about the command line.
func withCommands(page content, all []Command) (content, error) {
	sections := append(page.sections, section{"every-command", "Every command"})
	for _, c := range all {
		sections = append(sections, section{strings.ReplaceAll(c.Use, " ", "-"), c.Use})
	}
	texts, err := table("commands", page.title, all, sections)
	texts.body = page.body + texts.body
	return texts, err
}

// passage is a part of a help text: either running text, or lines whose layout must be kept.
type passage struct{ Text, Lines string }

// paragraphs splits a help text, which is wrapped for terminals, into passages. A passage with
// indented lines keeps its layout.
func paragraphs(help string) []passage {
	var all []passage
	for part := range strings.SplitSeq(help, "\n\n") {
		if strings.HasPrefix(part, " ") || strings.HasPrefix(part, "\t") || strings.Contains(part, "\n ") || strings.Contains(part, "\n\t") {
			all = append(all, passage{Lines: part})
		} else {
			all = append(all, passage{Text: strings.ReplaceAll(part, "\n", " ")})
		}
	}
	return all
}
