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

// visit is one request of somebody.
type visit struct {
	*Dashboard
	w       http.ResponseWriter
	r       *http.Request
	session *session // nil: nobody has signed in
	now     time.Time
	token   string // of the session
}

// maxForm is how large a form may be. A batch to be published may be larger.
const maxForm = 64 << 10

// visit makes a handler of a page. Who has not signed in is sent to do so, or refused where no person looks.
func (d *Dashboard) visit(f func(*visit) error, signedIn bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Dashboard: d, w: w, r: r, now: d.Now(), token: d.tokenOf(r)}
		v.session = d.sessions.find(v.token)
		if signedIn && v.session == nil {
			v.signInFirst()
			return
		}
		if r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/publish") {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			if err := r.ParseForm(); err != nil {
				d.refuse(w, r, v.session, weir.Errorf(weir.InvalidRequest, "the form could not be read, or is too large"))
				return
			}
		}
		if err := f(v); err != nil {
			d.refuse(w, r, v.session, err)
		}
	}
}

// signInFirst sends somebody to the door, and remembers where they wanted to go.
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

// wantsPage tells whether a person looks at the answer.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// refuse answers with an error: a page for people, JSON for scripts. What nobody may know is logged, and hidden.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, s *session, err error) {
	known, ok := asKnown(err)
	if !ok {
		if r.Context().Err() != nil {
			return // they went away
		}
		d.Logger.Error("a page failed", "page", r.Pattern, "error", err)
		known = &weir.Error{Code: weir.InternalError, Message: "something went wrong: the server's log says what"}
	}
	status := api.StatusOf(known)
	if !wantsPage(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": known.Code, "message": known.Message}})
		return
	}
	d.render(w, status, "error", view{Title: http.StatusText(status), Session: s, Data: known.Message})
}

func (v *visit) none() error { return weir.Errorf(weir.NotFound, "there is no such page") }

// page shows a page.
func (v *visit) page(status int, name, title string, data any) error {
	w := view{Title: title, Here: name, Session: v.session, Data: data}
	if v.session != nil && v.seen() {
		w.Notice = v.session.said()
	}
	v.render(v.w, status, name, w)
	return nil
}

// seen tells whether somebody gets to see the page: HEAD asks for nothing but its header fields, and uses nothing up.
func (v *visit) seen() bool { return v.r.Method != http.MethodHead }

// reveal returns a key that was not shown yet, once.
func (v *visit) reveal(id string) string {
	if !v.seen() {
		return ""
	}
	return v.session.reveal(id)
}

// back sends the browser on after something was done, and has it say so.
func (v *visit) back(to, said string) error {
	if said != "" {
		v.session.say(false, said)
	}
	http.Redirect(v.w, v.r, to, http.StatusSeeOther)
	return nil
}

// sorry sends the browser back to a page, with what was wrong; what nobody may know goes the way of other faults.
func (v *visit) sorry(to string, err error) error {
	known, ok := asKnown(err)
	if !ok {
		return err
	}
	return v.wrong(to, known.Message)
}

// wrong sends the browser back to a page that says what was wrong.
func (v *visit) wrong(to, text string) error {
	v.session.say(true, text)
	return v.back(to, "")
}

// asKnown is what a user may know of an error.
func asKnown(err error) (*weir.Error, bool) { return errors.AsType[*weir.Error](err) }

// json answers a script.
func (v *visit) json(value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Write(b)
	return nil
}

// client is the address of the browser.
func (v *visit) client() netip.Addr {
	return v.Access.ClientIP(v.r.RemoteAddr, v.r.Header["X-Forwarded-For"])
}

// did notes what somebody did.
func (v *visit) did(what, detail string) {
	v.note(v.r.Context(), entry{Who: Account, From: v.client().String(), What: what, Detail: access.Redacted(detail)})
}

// field is a value of the form, without white space around it.
func (v *visit) field(name string) string { return strings.TrimSpace(v.r.PostForm.Get(name)) }

// query is a value of the address, without white space around it.
func (v *visit) query(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }
