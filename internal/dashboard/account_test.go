package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
)

// A sign-in with the old password fails if the password changes while the sign-in waits to be
// checked.
func TestSignInWhilePasswordChanges(t *testing.T) {
	h := newHouse(t)
	synctest.Test(t, func(t *testing.T) {
		defer h.d.sessions.endAll(nil)
		h.d.hashing = make(chan struct{}, hashers)
		for range hashers { // occupy all hashing slots
			h.d.hashing <- struct{}{}
		}
		w := httptest.NewRecorder()
		form := url.Values{"name": {Account}, "password": {password}}
		r := httptest.NewRequest("POST", "/dashboard/sign-in", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		go h.d.ServeHTTP(w, r)
		synctest.Wait() // the sign-in waits for a slot
		if _, err := h.d.setPassword(t.Context(), "another one", 0); err != nil {
			t.Fatal(err)
		}
		for range hashers {
			<-h.d.hashing
		}
		synctest.Wait()
		if w.Code != http.StatusUnauthorized || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("sign-in with the old password: status %d, want 401 and no cookie", w.Code)
		}
		if n := len(h.d.sessions.all); n != 0 {
			t.Errorf("%d sessions, want 0", n)
		}
	})
}

// A verified password is worthless once the password has changed: it neither starts a session nor
// authorises another change.
func TestVerifiedPasswordExpires(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	ok, checked, err := h.d.verify(ctx, Account, password)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	now, err := h.d.setPassword(ctx, "another one", checked)
	h.must(err)
	if _, s := h.d.admit(checked, "", ""); s != nil || len(h.d.sessions.all) != 0 {
		t.Error("a replaced password started a session")
	}
	if _, err := h.d.setPassword(ctx, "a third one", checked); err == nil {
		t.Error("a replaced password authorized a change")
	}
	if _, s := h.d.admit(now, "", ""); s == nil {
		t.Error("the current password did not start a session")
	}
	h.must(h.d.UsePassword(ctx, "another one"))
	if _, err := h.d.setPassword(ctx, "a third one", now); err == nil {
		t.Error("the dashboard changed a password that a file manages")
	}
}

// When nodes start together, one of them makes the first password, and MakePassword on the others
// leaves it unchanged.
func TestMakePasswordKeepsExisting(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	made, err := h.d.MakePassword(ctx)
	if made != "" || err != nil {
		t.Errorf("MakePassword = %q, %v, want no password and no error", made, err)
	}
	if ok, _, err := h.d.verify(ctx, Account, password); !ok || err != nil {
		t.Errorf("the existing password no longer works: %v", err)
	}
}
