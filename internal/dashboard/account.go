package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

// Account is the name of the only account.
const Account = "admin"

// account is the account as it is stored, and in memory.
type account struct {
	mu       sync.Mutex // held while it is stored
	record   accountRecord
	revision engine.Revision
	managed  bool                            // by a file: the dashboard does not change it
	news     atomic.Pointer[engine.Document] // that another node stored
}

type accountRecord struct {
	Hash      string    `json:"hash"`
	ChangedAt weir.Time `json:"changed_at"`
}

// hash is what passwords are checked against, and the revision of the account that it belongs to.
func (a *account) hash() (string, engine.Revision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopt()
	return a.record.Hash, a.revision
}

func (a *account) changedAt() (at weir.Time, managed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopt()
	return a.record.ChangedAt, a.managed
}

// loadAccount reads the account, if there is one.
func (d *Dashboard) loadAccount(ctx context.Context) error {
	doc, err := d.Documents.Get(ctx, AccountKey)
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(doc.Value, &d.account.record)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", AccountKey, err)
	}
	d.account.revision = doc.Revision
	return nil
}

// HasPassword tells whether anybody can sign in.
func (d *Dashboard) HasPassword() bool {
	hash, _ := d.account.hash()
	return hash != ""
}

// MakePassword makes a password and returns it, to be shown once: 119 random bits. It is stored when the call returns. It is
// empty when another node was faster.
func (d *Dashboard) MakePassword(ctx context.Context) (string, error) {
	password := weir.Base62(20)
	_, err := d.setPassword(ctx, password, none)
	if errors.Is(err, engine.ErrExists) { // another node made one at the same time
		return "", nil
	}
	return password, err
}

// UsePassword has the password be this one from now on, as a file says: the dashboard itself does not change it any more.
// When it is another one than before, everybody is signed out. InvalidRequest when it is none.
func (d *Dashboard) UsePassword(ctx context.Context, password string) error {
	if err := CheckPassword(password); err != nil {
		return err
	}
	d.account.mu.Lock()
	d.account.managed = true
	d.account.adopt()
	hash := d.account.record.Hash
	d.account.mu.Unlock()
	if hash != "" {
		if same, err := matches(hash, password); same && err == nil {
			return nil
		}
	}
	_, err := d.setPassword(ctx, password, 0)
	if errors.Is(err, engine.ErrExists) || errors.Is(err, engine.ErrConflict) {
		return d.UsePassword(ctx, password) // another node set one at the same time, most likely the same
	}
	if err != nil {
		return err
	}
	d.note(ctx, entry{Who: "file", What: "password set", Detail: "from the file of --admin-password-file; everybody is signed out"})
	return nil
}

// none, in the place of a revision, is that of an account without a password.
const none = engine.Revision(math.MaxUint64)

// setPassword stores a password, and signs everybody out. It returns the revision that the account has now. A revision that
// the old password was checked at must still be the account's; 0: whoever sets it need not know the old one. ErrExists: there
// is one, where there should be none.
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
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopt()
	switch {
	case checked == none && a.revision != 0:
		return 0, engine.ErrExists
	case checked != 0 && checked != none && (checked != a.revision || a.managed):
		return 0, weir.Errorf(weir.InvalidRequest, "the password was changed by somebody else meanwhile: nothing was changed")
	}
	var doc engine.Document
	if a.revision == 0 {
		doc, err = d.Documents.Create(ctx, AccountKey, value)
	} else {
		doc, err = d.Documents.Update(ctx, AccountKey, value, a.revision)
	}
	if err != nil {
		return 0, unstored("store the password", err)
	}
	a.record, a.revision = record, doc.Revision
	d.sessions.endAll(nil)
	return a.revision, nil
}

// admit begins a session for somebody whose password was right at a revision of the account. It is nil when the account has
// another one since: while a password was being checked, it was changed, and everybody was signed out.
func (d *Dashboard) admit(checked engine.Revision, from, agent string) (token string, s *session) {
	a := &d.account
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopt()
	if checked != a.revision {
		return "", nil
	}
	return d.sessions.begin(from, agent)
}

// unstored says what a user may know of a write that the store did not take.
func unstored(doing string, err error) error {
	if errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrReadOnly) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
		known := weir.Errorf(weir.StorageUnavailable, "the store cannot take this change now")
		return fmt.Errorf("%s: %w (%w)", doing, known, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// accountView is the account's page.
type accountView struct {
	Changed  weir.Time
	Managed  bool
	Sessions []*session
	Mine     *session
	Idle     string
	Lasts    string
}

func (v *visit) accountPage() error {
	changed, managed := v.account.changedAt()
	return v.page(http.StatusOK, "account", "Account", accountView{
		Changed: changed, Managed: managed, Sessions: v.sessions.list(), Mine: v.session,
		Idle: roughly(idleFor), Lasts: roughly(lastsFor),
	})
}

// changePassword asks for the old one, and signs everybody else out.
func (v *visit) changePassword() error {
	const page = "/dashboard/account"
	if _, managed := v.account.changedAt(); managed {
		return v.wrong(page, "The password comes from a file (--admin-password-file): change it there.")
	}
	from := v.client()
	if wait := v.throttle.try(from); wait > 0 {
		v.refusals.add(v.now, from, changeRefused, true)
		return v.wrong(page, fmt.Sprintf("Too many attempts: try again in %s.", roughly(wait)))
	}
	ok, checked, err := v.verify(v.r.Context(), Account, v.r.PostForm.Get("old"))
	if err != nil {
		return err
	}
	if !ok {
		v.refusals.add(v.now, from, changeRefused, false)
		return v.wrong(page, "The old password is wrong: nothing was changed.")
	}
	v.throttle.succeeded(from)
	fresh := v.r.PostForm.Get("new")
	if fresh != v.r.PostForm.Get("again") {
		return v.wrong(page, "The two new passwords are not the same: nothing was changed.")
	}
	changed, err := v.setPassword(v.r.Context(), fresh, checked)
	if err != nil {
		return v.sorry(page, err)
	}
	v.did("password changed", "everybody else is signed out")
	token, s := v.admit(changed, from.String(), v.r.UserAgent())
	if s == nil { // somebody else changed it again
		http.Redirect(v.w, v.r, "/dashboard/sign-in", http.StatusSeeOther)
		return nil
	}
	v.session = s
	http.SetCookie(v.w, v.cookie(v.r, token))
	return v.back(page, "The password was changed, and everybody else is signed out.")
}

func (v *visit) signOutEverywhere() error {
	n := v.sessions.endAll(v.session)
	v.did("signed out everywhere", fmt.Sprintf("%d other sessions", n))
	return v.back("/dashboard/account", fmt.Sprintf("%d other sessions were ended.", n))
}
