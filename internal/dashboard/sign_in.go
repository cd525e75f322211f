package dashboard

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// signInForm is what the door shows.
type signInForm struct {
	Name  string
	Next  string
	Error string
	None  bool // there is no password, so that nobody can sign in
}

func (v *visit) signInPage() error {
	next := local(v.query("next"))
	if v.session != nil {
		http.Redirect(v.w, v.r, next, http.StatusSeeOther)
		return nil
	}
	return v.page(http.StatusOK, "sign_in", "Sign in", signInForm{Name: Account, Next: next, None: !v.HasPassword()})
}

// signIn lets somebody in who knows the password. The session gets an id that nobody has seen before.
func (v *visit) signIn() error {
	f := signInForm{Name: v.field("name"), Next: local(v.field("next")), None: !v.HasPassword()}
	from := v.client()
	if wait := v.throttle.try(from); wait > 0 {
		seconds := int(math.Ceil(wait.Seconds()))
		v.w.Header().Set("Retry-After", strconv.Itoa(seconds))
		f.Error = fmt.Sprintf("Too many attempts from this address: try again in %s.", roughly(wait))
		return v.page(http.StatusTooManyRequests, "sign_in", "Sign in", f)
	}
	ok, err := v.verify(v.r.Context(), f.Name, v.r.PostForm.Get("password"))
	if err != nil {
		return err
	}
	if !ok {
		v.noteFailure(v.r.Context(), from.String())
		f.Error = "Name or password is wrong."
		return v.page(http.StatusUnauthorized, "sign_in", "Sign in", f)
	}
	v.throttle.succeeded(from)
	if v.session != nil {
		v.sessions.endOne(v.session)
	}
	token, _ := v.sessions.begin(from.String(), v.r.UserAgent())
	http.SetCookie(v.w, cookie(v.r, token))
	v.did("signed in", "")
	http.Redirect(v.w, v.r, f.Next, http.StatusSeeOther)
	return nil
}

func (v *visit) signOut() error {
	v.sessions.endOne(v.session)
	http.SetCookie(v.w, cookie(v.r, ""))
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

// accountView is the account's page.
type accountView struct {
	Changed  string
	Managed  bool
	Sessions []*session
	Mine     *session
	Idle     string
	Lasts    string
}

func (v *visit) accountPage() error {
	changed, managed := v.account.changedAt()
	return v.page(http.StatusOK, "account", "Account", accountView{
		Changed: changed.String(), Managed: managed, Sessions: v.sessions.list(), Mine: v.session,
		Idle: roughly(idleFor), Lasts: roughly(lastsFor),
	})
}

// changePassword asks for the old one, and signs everybody else out.
func (v *visit) changePassword() error {
	const page = "/dashboard/account"
	if _, managed := v.account.changedAt(); managed {
		v.session.say(true, "The password comes from a file (--admin-password-file): change it there.")
		return v.back(page, "")
	}
	from := v.client()
	if wait := v.throttle.try(from); wait > 0 {
		v.session.say(true, fmt.Sprintf("Too many attempts from this address: try again in %s.", roughly(wait)))
		return v.back(page, "")
	}
	ok, err := v.verify(v.r.Context(), Account, v.r.PostForm.Get("old"))
	if err != nil {
		return err
	}
	if !ok {
		v.noteFailure(v.r.Context(), from.String())
		v.session.say(true, "The old password is wrong: nothing was changed.")
		return v.back(page, "")
	}
	v.throttle.succeeded(from)
	fresh := v.r.PostForm.Get("new")
	if fresh != v.r.PostForm.Get("again") {
		v.session.say(true, "The two new passwords are not the same: nothing was changed.")
		return v.back(page, "")
	}
	if err := v.setPassword(v.r.Context(), fresh); err != nil {
		return v.sorry(page, err)
	}
	token, s := v.sessions.begin(from.String(), v.r.UserAgent())
	v.session = s
	http.SetCookie(v.w, cookie(v.r, token))
	v.did("password changed", "everybody else is signed out")
	return v.back(page, "The password was changed, and everybody else is signed out.")
}

func (v *visit) signOutEverywhere() error {
	n := v.sessions.endAll(v.session)
	v.did("signed out everywhere", fmt.Sprintf("%d other sessions", n))
	return v.back("/dashboard/account", fmt.Sprintf("%d other sessions were ended.", n))
}

// auditView is a page of the audit log.
type auditView struct {
	Entries []entry
	Found   int
	Search  string
	Paging  paging
}

const auditPage = 50

func (v *visit) auditPage() error {
	search, n := v.query("q"), pageNumber(v.r)
	list, found := v.audit.search(search, (n-1)*auditPage, auditPage)
	return v.page(http.StatusOK, "audit", "Audit log", auditView{list, found, search, pages(v.r, n, auditPage, found)})
}
