package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"

	"weir"
	"weir/internal/access"
	"weir/internal/engine"
)

// Account is the name of the only account.
const Account = "admin"

// account is the stored account.
type account struct {
	changing sync.Mutex // held during each write to the store, so that only one write runs at a time

	mu         sync.Mutex // never held during a call to the store, because the store calls the method follow, which locks mu
	record     accountRecord
	revision   engine.Revision // revision of the stored document; 0 if there is no document
	unreadable error           // why the stored document cannot be read
	managed    bool            // the password comes from a file, and the dashboard must not change it
}

type accountRecord struct {
	Hash      string    `json:"hash"`
	ChangedAt weir.Time `json:"changed_at"`
}

// hash returns the stored hash of the password, and the revision of the account that contains this
// hash.
func (a *account) hash() (string, engine.Revision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.record.Hash, a.revision
}

// changedAt returns when the password was last set, and whether a file manages it.
func (a *account) changedAt() (at weir.Time, managed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.record.ChangedAt, a.managed
}

// HasPassword reports whether a password is set. Without one, signing in is impossible.
func (d *Dashboard) HasPassword() bool {
	hash, _ := d.account.hash()
	return hash != ""
}

// MakePassword generates a password with 119 random bits, stores its hash and returns the password.
// The hash is durable when the call returns. The password itself is not stored, so it cannot be
// shown again. If the account already has a password, for example because another node has just set
// one, MakePassword returns an empty string. If the store is full, MakePassword returns only the
// error. With any other error the hash may be durable, so MakePassword returns the password too.
func (d *Dashboard) MakePassword(ctx context.Context) (string, error) {
	password := weir.Base62(20)
	_, err := d.setPassword(ctx, password, noPasswordYet)
	if errors.Is(err, engine.ErrExists) { // another node has just set a password
		return "", nil
	}
	if errors.Is(err, engine.ErrFull) { // the hash was not stored
		return "", err
	}
	return password, err
}

// UsePassword sets the password that the operator keeps in a file. After this call the dashboard
// refuses to change the password. If the password differs from the stored one, all sessions end. If
// CheckPassword does not accept the password, the error is InvalidRequest.
func (d *Dashboard) UsePassword(ctx context.Context, password string) error {
	if err := CheckPassword(password); err != nil {
		return err
	}
	d.account.mu.Lock()
	d.account.managed = true
	hash := d.account.record.Hash
	d.account.mu.Unlock()
	if hash != "" {
		if same, err := matches(hash, password); same && err == nil {
			return nil
		}
	}
	_, err := d.setPassword(ctx, password, 0)
	if errors.Is(err, engine.ErrExists) || errors.Is(err, engine.ErrConflict) {
		return d.UsePassword(ctx, password) // another node set a password at the same time, most likely the same one
	}
	if err != nil {
		return err
	}
	d.note(ctx, entry{Who: "file", What: "password set", Detail: "from --admin-password-file; all sessions ended"})
	return nil
}

// noPasswordYet is passed to setPassword instead of a revision. It says that the account must not
// have a password yet.
const noPasswordYet = engine.Revision(math.MaxUint64)

// setPassword stores a password, ends all sessions and returns the new revision of the account. The
// parameter checked is the revision at which the caller verified the old password. setPassword
// fails if the account has changed since that revision, or if a file manages the password. A caller
// that needs no old password passes 0, which skips these two checks. A caller that passes
// noPasswordYet gets engine.ErrExists if a password exists already.
func (d *Dashboard) setPassword(ctx context.Context, password string, checked engine.Revision) (engine.Revision, error) {
	if err := CheckPassword(password); err != nil {
		return 0, err
	}
	record := accountRecord{Hash: hashPassword(password), ChangedAt: weir.TimeOf(d.Now())}
	value, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	a := &d.account
	a.changing.Lock()
	defer a.changing.Unlock()
	a.mu.Lock()
	now, managed := a.revision, a.managed
	a.mu.Unlock()
	switch {
	case checked == noPasswordYet && now != 0:
		return 0, engine.ErrExists
	case checked != 0 && checked != noPasswordYet && (checked != now || managed):
		return 0, weir.Errorf(weir.InvalidRequest, "the password was changed in another session in the meantime; nothing was changed")
	}
	// If the browser disconnects, the password still changes. The handler waits for the result,
	// because it must write the change to the audit log.
	ctx = context.WithoutCancel(ctx)
	var doc engine.Document
	if now == 0 {
		doc, err = d.Documents.Create(ctx, AccountKey, value)
	} else {
		doc, err = d.Documents.Update(ctx, AccountKey, value, now)
	}
	if err != nil {
		return 0, unstored("store password", err)
	}
	return doc.Revision, nil
}

// admit starts a session for a client whose password was correct at the given revision of the
// account. It returns a nil session if the account has changed since that revision: a change of the
// password ends all sessions, so admit must not start one for the old password afterwards.
func (d *Dashboard) admit(checked engine.Revision, from, agent string) (token string, s *session) {
	a := &d.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if checked != a.revision {
		return "", nil
	}
	return d.sessions.begin(checked, from, agent)
}

// unstored wraps the error of a failed write. If the store refuses writes for a known reason, the
// result is StorageUnavailable with this reason, which the user sees. Other errors stay internal.
func unstored(doing string, err error) error {
	if errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrReadOnly) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
		known := weir.Errorf(weir.StorageUnavailable, "the store does not accept changes at the moment")
		return fmt.Errorf("%s: %w (%w)", doing, known, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// accountView is the data of the account page.
type accountView struct {
	Changed  weir.Time
	Managed  bool
	Sessions []*session
	Mine     *session
	Idle     string // how long an unused session lasts
	Lasts    string // how long a session lasts at most, even if it is used
	Tokens   []access.Token
	Secret   string // a new management token; empty except on the first view after it was created
	Command  string // command to copy, which uses the new token; empty if Secret is
}

func (v *visit) accountPage() error {
	changed, managed := v.account.changedAt()
	_, account := v.account.hash()
	view := accountView{
		Changed: changed, Managed: managed, Sessions: v.sessions.list(account), Mine: v.session,
		Idle: roughly(idleFor), Lasts: roughly(lastsFor), Tokens: v.Access.Tokens(), Secret: v.reveal(newToken),
	}
	slices.Reverse(view.Tokens)
	if view.Secret != "" {
		view.Command = "curl -sS" + v.Curl + " -H 'Authorization: Bearer " + view.Secret + "' " + v.BaseURL + "/manage/v1/projects"
	}
	return v.page(http.StatusOK, "account", "Account", view)
}

// newToken is the id under which a session keeps a new management token until it is shown. No key
// has this id.
const newToken = "token"

// createToken creates a management token (D36) and shows it once on the account page.
func (v *visit) createToken() error {
	const page = "/dashboard/account"
	t, secret, err := v.Access.CreateToken(v.r.Context(), v.field("name"))
	if err != nil {
		return v.sorry(page, err)
	}
	v.keep(newToken, secret.Reveal())
	v.did("token created", t.Masked+" "+t.ID+" "+t.Name)
	return v.back(page+"#tokens", "")
}

func (v *visit) revokeToken() error {
	const page = "/dashboard/account"
	t, err := v.Access.RevokeToken(v.r.Context(), v.r.PathValue("id"))
	if err != nil {
		return v.sorry(page, err)
	}
	v.did("token revoked", t.Masked+" "+t.ID+" "+t.Name)
	return v.back(page+"#tokens", "Token revoked. Keys that it created stay valid.")
}

// changePassword requires the old password. It ends all sessions and starts a new one for this
// browser. Attempts with a wrong old password are throttled like failed sign-ins, so that the thief
// of a session cannot guess the password.
func (v *visit) changePassword() error {
	const page = "/dashboard/account"
	if _, managed := v.account.changedAt(); managed {
		return v.wrong(page, "The password is set by --admin-password-file. Change it in that file.")
	}
	from := v.client()
	wait, succeeded := v.attempt()
	if wait > 0 {
		v.refusals.add(v.now, from, changeRefused, true)
		return v.wrong(page, fmt.Sprintf("Too many attempts. Try again in %s.", roughly(wait)))
	}
	ok, checked, err := v.verify(v.r.Context(), Account, v.r.PostForm.Get("old"))
	if err != nil {
		return err
	}
	if !ok {
		v.refusals.add(v.now, from, changeRefused, false)
		return v.wrong(page, "The old password is wrong. Nothing was changed.")
	}
	succeeded()
	fresh := v.r.PostForm.Get("new")
	if fresh != v.r.PostForm.Get("again") {
		return v.wrong(page, "The new passwords do not match. Nothing was changed.")
	}
	changed, err := v.setPassword(v.r.Context(), fresh, checked)
	if err != nil {
		return v.sorry(page, err)
	}
	v.did("password changed", "all other sessions ended")
	token, s := v.admit(changed, from.String(), v.r.UserAgent())
	if s == nil { // another node has changed the password again
		http.Redirect(v.w, v.r, "/dashboard/sign-in", http.StatusSeeOther)
		return nil
	}
	v.session, v.token = s, token
	v.sessions.store(v.r.Context(), s)
	v.sessions.spread(v.r.Context())
	http.SetCookie(v.w, v.cookie(v.r, token))
	v.mark()
	return v.back(page, "Password changed. All other sessions were signed out.")
}

func (v *visit) signOutEverywhere() error {
	if v.Documents.Shared() && v.Lease() == nil {
		if err := v.Access.CatchUpTogether(); err != nil { // sessions that have just begun on other nodes must end too
			return err
		}
	}
	_, account := v.account.hash()
	n := v.sessions.endOthers(account, v.session)
	v.sessions.spread(v.r.Context())
	v.did("signed out everywhere", fmt.Sprintf("other sessions ended: %d", n))
	return v.back("/dashboard/account", fmt.Sprintf("Other sessions signed out: %d.", n))
}
