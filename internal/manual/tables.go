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

// tables are the pages that are not written in Markdown.
var tables = template.Must(template.New("tables").Funcs(template.FuncMap{
	"markdown": fragment, "inline": inline, "reason": http.StatusText,
	"anchor": func(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") },
}).Parse(tablesTemplate))

func table(name, title string, data any, sections []section) (content, error) {
	var b bytes.Buffer
	err := tables.ExecuteTemplate(&b, name, data)
	return content{title: title, body: template.HTML(finish(b.String())), sections: sections}, err
}

// faults makes the page that every doc_url leads to: an anchor for every code, what it means and what to do.
func faults(all []Fault) (content, error) {
	var sections []section
	for _, f := range all {
		sections = append(sections, section{f.Code, f.Code})
	}
	return table("errors", "Errors", all, sections)
}

// commands makes the page of the program's help.
func commands(all []Command) (content, error) {
	var sections []section
	for _, c := range all {
		sections = append(sections, section{strings.ReplaceAll(c.Use, " ", "-"), c.Use})
	}
	return table("commands", "Command line", all, sections)
}
