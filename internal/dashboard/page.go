package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"weir"
)

//go:embed pages/*.html
var pageFiles embed.FS

// view is what a page is made of.
type view struct {
	Title   string
	Here    string // name of the page
	Session *session
	Notice  *notice
	Data    any
}

// templates are the pages by name, each with the layout around it.
var templates = func() map[string]*template.Template {
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
}()

// render sends a page. It is made whole first, so that a fault in it is no half of a page.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, v view) {
	var b bytes.Buffer
	if err := templates[name].Execute(&b, v); err != nil {
		d.Logger.Error("a page failed", "page", name, "error", err)
		http.Error(w, "something went wrong: the server's log says what", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// fragments are parts of a page, by the names of their templates, for a script to put into the page that is open.
func fragments(page string, data any, names []string) (map[string]string, error) {
	parts := map[string]string{}
	for _, name := range names {
		var b bytes.Buffer
		if err := templates[page].ExecuteTemplate(&b, name, data); err != nil {
			return nil, fmt.Errorf("make %s of %s: %w", name, page, err)
		}
		parts[name] = b.String()
	}
	return parts, nil
}

var functions = template.FuncMap{
	"asset":   assetURL,
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

// whenText is a moment as people read it, in UTC; scripts say how long ago that was.
func whenText(t weir.Time) string { return t.Std().Format("2006-01-02 15:04:05") }

// bytesText is a number of bytes in the unit that fits.
func bytesText(v any) string {
	n := toFloat(v)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if math.Abs(n) < 1024 || unit == "TiB" {
			if unit == "B" || math.Abs(n) >= 100 {
				return fmt.Sprintf("%.0f %s", n, unit)
			}
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return ""
}

// numberText is a number with its digits in groups.
func numberText(v any) string {
	n := toFloat(v)
	text := strconv.FormatFloat(math.Abs(n), 'f', 0, 64)
	if n != math.Trunc(n) && math.Abs(n) < 100 {
		text = strconv.FormatFloat(math.Abs(n), 'f', 1, 64)
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:] // a narrow space that does not break
	}
	if fraction != "" && fraction != "0" {
		whole += "." + fraction
	}
	if n < 0 {
		whole = "-" + whole
	}
	return whole
}

// msText is a number of milliseconds.
func msText(v any) string {
	n := toFloat(v)
	if n < 10 {
		return fmt.Sprintf("%.1f ms", n)
	}
	return fmt.Sprintf("%.0f ms", n)
}

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

// paging is the links under a long list.
type paging struct {
	Page, Pages    int
	Previous, Next string // empty: there is none
}

// pageNumber is the page that is asked for, from 1 on.
func pageNumber(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || n < 1 || n > 1e6 {
		return 1
	}
	return n
}

// pages makes the links, and says which entries the page has: from and to are places in the list. A page beyond the last is the last.
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
