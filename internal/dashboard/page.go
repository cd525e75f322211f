package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir"
)

//go:embed pages/*.html
var pageFiles embed.FS

// view is the data of the layout.
type view struct {
	Title   string
	Here    string // template name of the page, for the navigation
	Session *session
	Notice  *notice
	Trouble []Trouble
	Cluster bool // several nodes share the store
	Data    any
}

// templates returns the pages by name, each combined with the layout. The first call
// parses them. The start of the program does not, because most commands need none.
var templates = sync.OnceValue(func() map[string]*template.Template {
	all := map[string]*template.Template{}
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(pageFiles, "pages/layout.html"))
	names, err := pageFiles.ReadDir("pages")
	if err != nil {
		panic(err)
	}
	for _, f := range names {
		if name := strings.TrimSuffix(f.Name(), ".html"); name != "layout" {
			all[name] = template.Must(template.Must(layout.Clone()).ParseFS(pageFiles, path.Join("pages", f.Name())))
		}
	}
	return all
})

// render sends a page. It executes the template into a buffer first, so that a failing template
// gives status 500 rather than half a page.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, v view) {
	var b bytes.Buffer
	if err := templates()[name].Execute(&b, v); err != nil {
		d.Logger.Error("failed to render page", "page", name, "error", err)
		http.Error(w, "internal error: see the server log", http.StatusInternalServerError)
		return
	}
	text := visible(b.Bytes())
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write(text)
}

// fragments renders parts of a page, by template name, for a script that updates the open page.
func fragments(page string, data any, names []string) (map[string]string, error) {
	parts := map[string]string{}
	for _, name := range names {
		var b bytes.Buffer
		if err := templates()[page].ExecuteTemplate(&b, name, data); err != nil {
			return nil, fmt.Errorf("render %s of %s: %w", name, page, err)
		}
		parts[name] = string(visible(b.Bytes()))
	}
	return parts, nil
}

var functions = template.FuncMap{
	"asset":   assetURL,
	"manual":  manualPage,
	"bytes":   bytesText,
	"number":  numberText,
	"ms":      msText,
	"when":    whenText,
	"instant": weir.TimeOf,
	"roughly": roughly,
	"seconds": func(n int64) string { return roughly(time.Duration(n) * time.Second) },
	"plural": func(n any, one string) string {
		text := numberText(n)
		if text != "1" {
			one += "s"
		}
		return text + " " + one
	},
	"join": func(list any, sep string) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", sep)
	},
	"dict": func(pairs ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	},
}

// manualPages maps the template name of a page to the place in the manual that explains it. For all
// other pages this is the manual's page about the dashboard.
var manualPages = map[string]string{
	"overview": "/docs/dashboard#overview", "streams": "/docs/dashboard#streams", "stream_new": "/docs/dashboard#streams",
	"stream": "/docs/dashboard#one-stream-and-its-events", "stream_delete": "/docs/dashboard#streams", "connect": "/docs/dashboard#one-stream-and-its-events",
	"projects": "/docs/dashboard#projects-and-keys", "project_delete": "/docs/dashboard#projects-and-keys",
	"keys": "/docs/keys", "key": "/docs/keys#revoke-and-rotate", "key_new": "/docs/keys#create-keys", "key_rotate": "/docs/keys#revoke-and-rotate",
	"requests": "/docs/dashboard#requests", "audit": "/docs/dashboard#audit-log", "account": "/docs/dashboard#sign-in", "sign_in": "/docs/dashboard#sign-in",
}

// manualPage returns the address of the place in the manual that explains a page.
func manualPage(name string) string { return cmp.Or(manualPages[name], "/docs/dashboard") }

// whenText formats a time in UTC. Scripts add how long ago this time was.
func whenText(t weir.Time) string { return t.Std().Format("2006-01-02 15:04:05") }

// bytesText formats a number of bytes in the largest unit that fits, such as "1.5 MiB".
func bytesText(v any) string {
	n := toFloat(v)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if math.Abs(n) < 1024 || unit == "TiB" {
			if unit == "B" || math.Abs(n) >= 99.95 { // 99.95 would be rounded to 100.0
				return fmt.Sprintf("%.0f %s", n, unit)
			}
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return ""
}

// numberText formats a number with its digits in groups of three. Numbers below 100 keep one
// decimal.
func numberText(v any) string {
	n := toFloat(v)
	text := strconv.FormatFloat(math.Abs(n), 'f', 0, 64)
	if n != math.Trunc(n) && math.Abs(n) < 100 {
		text = strconv.FormatFloat(math.Abs(n), 'f', 1, 64)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:] // narrow no-break space
	}
	if fraction != "" && fraction != "0" {
		whole += "." + fraction
	}
	if n < 0 {
		whole = "-" + whole
	}
	return whole
}

// msText formats milliseconds, or a time.Duration.
func msText(v any) string {
	n := toFloat(v)
	if n > 0 && n < 0.05 {
		return "<0.1 ms"
	}
	if n < 10 {
		return fmt.Sprintf("%.1f ms", n)
	}
	return fmt.Sprintf("%.0f ms", n)
}

// toFloat converts the numbers that templates format. A duration becomes milliseconds. A value of
// any other type becomes NaN.
func toFloat(v any) float64 {
	switch n := v.(type) {
	case int:
		return float64(n)
	case int64:
		return float64(n)
	case uint32:
		return float64(n)
	case uint64:
		return float64(n)
	case weir.Seq:
		return float64(n)
	case float64:
		return n
	case time.Duration:
		return float64(n) / 1e6
	}
	return math.NaN()
}

// paging holds the links below a long list.
type paging struct {
	Page, Pages    int
	Previous, Next string // URLs; empty on the first and the last page
}

// pageNumber returns the requested page, starting at 1. An invalid number gives 1.
func pageNumber(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || n < 1 || n > 1e6 {
		return 1
	}
	return n
}

// pages returns the links for a list with the given page size and length. It also returns the range
// of entries, list[from:to], that the requested page shows. A page number beyond the last page
// gives the last page.
func pages(r *http.Request, size, found int) (p paging, from, to int) {
	p.Pages = max(1, (found+size-1)/size)
	p.Page = min(pageNumber(r), p.Pages)
	page := p.Page
	link := func(n int) string {
		q := r.URL.Query()
		q.Set("page", strconv.Itoa(n))
		return (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
	}
	if page > 1 {
		p.Previous = link(page - 1)
	}
	if page < p.Pages {
		p.Next = link(page + 1)
	}
	return p, (page - 1) * size, min(page*size, found)
}
