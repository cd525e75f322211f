package dashboard

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// Actions that the audit log shows for a refused password.
const (
	signInRefused = "sign-in refused"
	changeRefused = "password change refused"
)

// signInForm is the data of the sign-in page.
type signInForm struct {
	Name  string
	Next  string // page to show after signing in
	Error string
	None  bool   // no password is set, so signing in is impossible
	There string // URL where the user can sign in instead, if the page was opened over plain HTTP although the base URL is https: browsers would discard the session cookie
}

func (v *visit) signInPage() error {
	next := local(v.query("next"))
	if v.session != nil {
		http.Redirect(v.w, v.r, next, http.StatusSeeOther)
		return nil
	}
	return v.door(http.StatusOK, signInForm{Name: Account, Next: next})
}

// door shows the sign-in form.
func (v *visit) door(status int, f signInForm) error {
	f.None = !v.HasPassword()
	if v.base.Scheme == "https" && !cameByTLS(v.r) && v.r.Host != v.base.Host {
		f.There = v.BaseURL + "/dashboard"
	}
	return v.page(status, "sign_in", "Sign in", f)
}

// signIn checks the password and starts a session. The session always gets a new token and replaces
// the browser's old session. So an attacker gains nothing by setting a token in the browser before
// the sign-in.
func (v *visit) signIn() error {
	f := signInForm{Name: v.field("name"), Next: local(v.field("next"))}
	from := v.client()
	wait, succeeded := v.attempt()
	if wait > 0 {
		v.refusals.add(v.now, from, signInRefused, true)
		seconds := int(math.Ceil(wait.Seconds()))
		v.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		f.Error = fmt.Sprintf("Too many attempts. Try again in %s.", roughly(wait))
		return v.door(http.StatusTooManyRequests, f)
	}
	ok, checked, err := v.verify(v.r.Context(), f.Name, v.r.PostForm.Get("password"))
	if err != nil {
		return err
	}
	var token string
	var s *session
	if ok {
		token, s = v.admit(checked, from.String(), v.r.UserAgent())
		ok = s != nil
	}
	if !ok {
		v.refusals.add(v.now, from, signInRefused, false)
		f.Error = "Wrong name or password."
		return v.door(http.StatusUnauthorized, f)
	}
	succeeded()
	v.sessions.store(v.r.Context(), s)
	if v.session != nil {
		v.session.end()
		v.sessions.spread(v.r.Context())
	}
	http.SetCookie(v.w, v.cookie(v.r, token))
	v.mark()
	v.keepRefusals(context.WithoutCancel(v.r.Context())) // so that earlier failures are in the log before this success
	v.did("signed in", "")
	http.Redirect(v.w, v.r, f.Next, http.StatusSeeOther)
	return nil
}

func (v *visit) signOut() error {
	v.session.end()
	v.sessions.spread(v.r.Context())
	http.SetCookie(v.w, v.cookie(v.r, ""))
	v.did("signed out", "")
	http.Redirect(v.w, v.r, "/dashboard/sign-in", http.StatusSeeOther)
	return nil
}

// local returns the path if it belongs to the dashboard, and the path of the overview otherwise.
// Without this check, an attacker could craft a link that redirects the user to another site after
// the sign-in.
func local(path string) string {
	if path != "/dashboard" && !strings.HasPrefix(path, "/dashboard/") && !strings.HasPrefix(path, "/dashboard?") ||
		strings.Contains(path, "//") || strings.ContainsAny(path, "\\\r\n") || strings.HasPrefix(path, "/dashboard/sign-in") {
		return "/dashboard"
	}
	return path
}
