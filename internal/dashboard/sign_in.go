package dashboard

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// What is said of a password that was refused.
const (
	signInRefused = "sign-in refused"
	changeRefused = "change of the password refused"
)

// signInForm is what the door shows.
type signInForm struct {
	Name  string
	Next  string
	Error string
	None  bool   // there is no password, so that nobody can sign in
	There string // where to sign in instead, if the browser does not keep the cookie here
}

func (v *visit) signInPage() error {
	next := local(v.query("next"))
	if v.session != nil {
		http.Redirect(v.w, v.r, next, http.StatusSeeOther)
		return nil
	}
	return v.door(http.StatusOK, signInForm{Name: Account, Next: next})
}

// door shows the form.
func (v *visit) door(status int, f signInForm) error {
	f.None = !v.HasPassword()
	if v.base.Scheme == "https" && !cameByTLS(v.r) && v.r.Host != v.base.Host {
		f.There = v.BaseURL + "/dashboard"
	}
	return v.page(status, "sign_in", "Sign in", f)
}

// signIn lets somebody in who knows the password. The session gets an id that nobody has seen before.
func (v *visit) signIn() error {
	f := signInForm{Name: v.field("name"), Next: local(v.field("next"))}
	from := v.client()
	if wait := v.throttle.try(from); wait > 0 {
		v.refusals.add(v.now, from, signInRefused, true)
		seconds := int(math.Ceil(wait.Seconds()))
		v.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		f.Error = fmt.Sprintf("Too many attempts: try again in %s.", roughly(wait))
		return v.door(http.StatusTooManyRequests, f)
	}
	ok, checked, err := v.verify(v.r.Context(), f.Name, v.r.PostForm.Get("password"))
	if err != nil {
		return err
	}
	var token string
	if ok {
		var s *session
		token, s = v.admit(checked, from.String(), v.r.UserAgent())
		ok = s != nil
	}
	if !ok {
		v.refusals.add(v.now, from, signInRefused, false)
		f.Error = "Name or password is wrong."
		return v.door(http.StatusUnauthorized, f)
	}
	v.throttle.succeeded(from)
	if v.session != nil {
		v.sessions.endOne(v.session)
	}
	http.SetCookie(v.w, v.cookie(v.r, token))
	v.keepRefusals(v.r.Context()) // what came before it
	v.did("signed in", "")
	http.Redirect(v.w, v.r, f.Next, http.StatusSeeOther)
	return nil
}

func (v *visit) signOut() error {
	v.sessions.endOne(v.session)
	http.SetCookie(v.w, v.cookie(v.r, ""))
	v.did("signed out", "")
	http.Redirect(v.w, v.r, "/dashboard/sign-in", http.StatusSeeOther)
	return nil
}

// local is a path of the dashboard, whatever was asked for: nobody is led elsewhere.
func local(path string) string {
	if path != "/dashboard" && !strings.HasPrefix(path, "/dashboard/") && !strings.HasPrefix(path, "/dashboard?") ||
		strings.Contains(path, "//") || strings.ContainsAny(path, "\\\r\n") || strings.HasPrefix(path, "/dashboard/sign-in") {
		return "/dashboard"
	}
	return path
}
