package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
)

// visit is one request to the dashboard.
type visit struct {
	*Dashboard
	w       http.ResponseWriter
	r       *http.Request
	session *session // nil if the browser has not signed in
	now     time.Time
	token   string // token of the session
	left    flash  // what the last action left for this page
	next    flash  // what this action leaves for the next page
}

// maxForm is the size limit of a form in bytes. Test batches have their own limit, maxTestBatch.
const maxForm = 64 << 10

// visit returns a handler that calls f. If the parameter signedIn is true, a request without
// a session is redirected to the sign-in page, or gets 401 if it comes from a script.
func (d *Dashboard) visit(f func(*visit) error, signedIn bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Dashboard: d, w: w, r: r, now: d.Now(), token: d.tokenOf(r)}
		v.session = d.sessions.of(v.token)
		if signedIn && v.session == nil {
			v.signInFirst()
			return
		}
		if v.session != nil {
			v.left = v.readFlash()
			v.follow()
		}
		if r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/publish") {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if err := r.ParseForm(); err != nil {
				d.refuse(w, r, v.session, weir.Errorf(weir.InvalidRequest, "the form is malformed or too large"))
				return
			}
		}
		if err := f(v); err != nil {
			d.refuse(w, r, v.session, err)
		}
	}
}

// signInFirst redirects a browser to the sign-in page. After the sign-in the browser returns to the
// requested page. Scripts get 401.
func (v *visit) signInFirst() {
	if !wantsPage(v.r) {
		v.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		v.w.WriteHeader(http.StatusUnauthorized)
		v.w.Write([]byte("sign in at /dashboard/sign-in\n"))
		return
	}
	to := "/dashboard/sign-in"
	if v.r.Method == http.MethodGet && v.r.URL.Path != "/dashboard" {
		to += "?next=" + url.QueryEscape(v.r.URL.RequestURI())
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
}

// wantsPage reports whether a browser navigates to a page. Otherwise the request comes from a
// script.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// refuse responds with an error: a page for browsers, JSON for scripts. An error that is not a
// weir.Error is logged, and the client only learns that there was an internal error.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, s *session, err error) {
	known, ok := asKnown(err)
	if !ok {
		if r.Context().Err() != nil {
			return // the client disconnected
		}
		d.Logger.Error("page failed", "page", r.Pattern, "error", err)
		known = &weir.Error{Code: weir.InternalError, Message: "internal error: see the server log"}
	}
	status := api.StatusOf(known)
	if !wantsPage(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": known.Code, "message": known.Message}})
		return
	}
	page := view{Title: http.StatusText(status), Session: s, Cluster: d.Nodes != nil, Data: known.Message}
	if s != nil {
		page.Trouble = d.troubles()
	}
	d.render(w, status, "error", page)
}

func (v *visit) none() error { return weir.Errorf(weir.NotFound, "page not found") }

// page renders a page. If the session has a pending message, the page shows it.
func (v *visit) page(status int, name, title string, data any) error {
	w := view{Title: title, Here: name, Session: v.session, Cluster: v.Nodes != nil, Data: data}
	if v.session != nil {
		w.Trouble = v.troubles()
		var err error
		if w.Notice, err = v.said(); err != nil {
			return err
		}
	}
	v.render(v.w, status, name, w)
	return nil
}

// back redirects the browser after an action. The next page shows the message, if it is not empty.
func (v *visit) back(to, said string) error {
	if said != "" {
		v.say(false, said)
	}
	if v.next.Node = v.Node; v.next != (flash{}) {
		if err := v.writeFlash(v.next); err != nil {
			return err
		}
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

// sorry redirects the browser to a page that shows the error. If the error is internal, sorry
// returns it instead, and the method refuse hides its text from the client.
func (v *visit) sorry(to string, err error) error {
	known, ok := asKnown(err)
	if !ok {
		return err
	}
	return v.wrong(to, known.Message)
}

// wrong redirects the browser to a page that shows the text as an error.
func (v *visit) wrong(to, text string) error {
	v.say(true, text)
	return v.back(to, "")
}

// asKnown returns the part of an error that users may see.
func asKnown(err error) (*weir.Error, bool) { return errors.AsType[*weir.Error](err) }

// json responds to a script.
func (v *visit) json(value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Write(b)
	return nil
}

// client returns the address of the browser, even if the request came through a trusted proxy.
func (v *visit) client() netip.Addr {
	return v.Access.ClientIP(v.r.RemoteAddr, v.r.Header["X-Forwarded-For"])
}

// did records an action of the signed-in user in the audit log. It redacts keys in the detail.
func (v *visit) did(what, detail string) {
	v.note(v.r.Context(), entry{Who: Account, From: v.client().String(), What: what, Detail: access.Redacted(detail)})
}

// field returns a form value without surrounding white space.
func (v *visit) field(name string) string { return strings.TrimSpace(v.r.PostForm.Get(name)) }

// query returns a query parameter without surrounding white space.
func (v *visit) query(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }
