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

// A sign-in with the old password that waits while the password is changed lets nobody in.
func TestSignInWhilePasswordChanges(t *testing.T) {
	h := newHouse(t)
	synctest.Test(t, func(t *testing.T) {
		defer h.d.sessions.endAll(nil)
		h.d.hashing = make(chan struct{}, hashers)
		for range hashers { // everybody who hashes is busy
			h.d.hashing <- struct{}{}
		}
		w := httptest.NewRecorder()
		form := url.Values{"name": {Account}, "password": {password}}
		r := httptest.NewRequest("POST", "/dashboard/sign-in", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		go h.d.ServeHTTP(w, r)
		synctest.Wait() // it waits for its turn
		if _, err := h.d.setPassword(t.Context(), "another one", 0); err != nil {
			t.Fatal(err)
		}
		for range hashers {
			<-h.d.hashing
		}
		synctest.Wait()
		if w.Code != http.StatusUnauthorized || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("the old password gives %d", w.Code)
		}
		if n := len(h.d.sessions.all); n != 0 {
			t.Errorf("%d sessions", n)
		}
	})
}

// Who proved to know a password that is changed before the session begins, or before another change, is too late.
func TestPasswordCheckedTooEarly(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	ok, checked, err := h.d.verify(ctx, Account, password)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	now, err := h.d.setPassword(ctx, "another one", checked)
	h.must(err)
	if _, s := h.d.admit(checked, "", ""); s != nil || len(h.d.sessions.all) != 0 {
		t.Error("a session began with a password that is no more")
	}
	if _, err := h.d.setPassword(ctx, "a third one", checked); err == nil {
		t.Error("it was changed by somebody who knows an old one")
	}
	if _, s := h.d.admit(now, "", ""); s == nil {
		t.Error("who knows the password does not get in")
	}
	h.must(h.d.UsePassword(ctx, "another one"))
	if _, err := h.d.setPassword(ctx, "a third one", now); err == nil {
		t.Error("it was changed though a file has it")
	}
}

// Of nodes that start together one makes the first password: who hears of it while it makes its own leaves it as it is.
func TestFirstPasswordOfAnother(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	made, err := h.d.MakePassword(ctx)
	if made != "" || err != nil {
		t.Errorf("made %q, %v", made, err)
	}
	if ok, _, err := h.d.verify(ctx, Account, password); !ok || err != nil {
		t.Errorf("the password that was there is not valid any more: %v", err)
	}
}
