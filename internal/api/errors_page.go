package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/http"
	"strconv"
	"strings"
)

// page is a document that never changes while the server runs.
type page struct {
	body   []byte
	policy []string // Content-Security-Policy
}

const errorsStyle = `
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --paper: #fcfcfd; --line: #e0e1e6; --mark: #eef4ff; --accent: #0b62d6 }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --soft: #b0b4ba; --paper: #111113; --line: #363a3f; --mark: #10233f; --accent: #70b8ff } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 46rem; padding: 2.5rem 1.25rem 6rem; background: var(--paper); color: var(--ink); font: 1rem/1.6 system-ui, sans-serif }
h1 { font-size: 1.6rem; line-height: 1.2 }
h2 { font-size: 1.05rem; margin: 0 0 .4rem; font-family: ui-monospace, monospace; overflow-wrap: anywhere }
a { color: var(--accent) }
h2 a { color: inherit; text-decoration: none }
h2 a:hover, h2 a:focus-visible { text-decoration: underline }
section { border-top: 1px solid var(--line); margin: 0 -.75rem; padding: 1.1rem .75rem; scroll-margin-top: 1rem }
section:target { background: var(--mark); border-radius: .5rem }
p { margin: .3rem 0 }
.soft { color: var(--soft) }
nav { margin: 1rem 0 1.5rem; font: .85rem/1.9 ui-monospace, monospace }
nav a { margin-right: 1rem }
`

// newErrorsPage makes the page that every doc_url leads to: an anchor for every code, what it means and what to do. It
// loads nothing from anywhere.
func newErrorsPage() page {
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Errors - Weir</title>\n<style>" + errorsStyle + "</style>\n</head>\n<body>\n" +
		"<h1>Errors</h1>\n<p>Every error of the interface is a JSON object with <code>type</code>, <code>code</code>, <code>message</code>, " +
		"<code>request_id</code> and a <code>doc_url</code> that leads here. Programs should look at the code, and people at the message. " +
		"The request id is also in the <code>x-request-id</code> header field of every answer: quote it when you ask for help.</p>\n<nav aria-label=\"Codes\">\n")
	for _, f := range faults {
		fmt.Fprintf(&b, "<a href=\"#%[1]s\">%[1]s</a>\n", f.code)
	}
	b.WriteString("</nav>\n<main>\n")
	for _, f := range faults {
		retry := ""
		if f.retryAfter != "" || f.status == http.StatusTooManyRequests {
			retry = " &middot; with <code>retry-after</code>"
		}
		fmt.Fprintf(&b, "<section id=\"%[1]s\">\n<h2><a href=\"#%[1]s\">%[1]s</a></h2>\n<p class=\"soft\">%d %s &middot; <code>%s</code>%s</p>\n<p>%s</p>\n<p><strong>What to do:</strong> %s</p>\n</section>\n",
			f.code, f.status, http.StatusText(f.status), f.kind, retry, html.EscapeString(f.means), html.EscapeString(f.todo))
	}
	b.WriteString("</main>\n</body>\n</html>\n")
	sum := sha256.Sum256([]byte(errorsStyle))
	return page{
		body:   []byte(b.String()),
		policy: []string{"default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
	}
}

// errors serves the page. It is a document for people, not a part of /v1: it may be kept for a while, and counts for nobody.
func (c *call) errors() error {
	h := c.w.Header()
	if c.r.Method != http.MethodGet && !c.isHead() {
		c.peek()
		h["Allow"] = []string{"GET, HEAD"}
		return errMethod
	}
	h["Content-Type"] = []string{"text/html; charset=utf-8"}
	h["Content-Length"] = []string{strconv.Itoa(len(c.h.errorsPage.body))}
	h["Content-Security-Policy"] = c.h.errorsPage.policy
	h.Set("X-Content-Type-Options", "nosniff")
	h["Cache-Control"] = []string{"public, max-age=300"}
	h.Set("Server", "svc")
	c.sent, c.status = true, http.StatusOK
	c.w.WriteHeader(http.StatusOK)
	if !c.isHead() {
		c.written = int64(len(c.h.errorsPage.body))
		c.w.Write(c.h.errorsPage.body)
	}
	return nil
}
