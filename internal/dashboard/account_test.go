package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"weir/internal/dashboard"
)

// A sign-in with the old password fails if the password changes while the sign-in waits for its
// password check.
func TestSignInWhilePasswordChanges(t *testing.T) {
	svc := startService(t)
	synctest.Test(t, func(t *testing.T) {
		release := dashboard.HoldVerify(svc.Dashboard)
		w := httptest.NewRecorder()
		form := url.Values{"name": {dashboard.Account}, "password": {password}}
		r := httptest.NewRequest("POST", "/dashboard/sign-in", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		go svc.Dashboard.ServeHTTP(w, r)
		synctest.Wait() // now the sign-in waits for its password check
		if _, err := dashboard.SetPassword(svc.Dashboard, t.Context(), "another one", 0); err != nil {
			t.Fatal(err)
		}
		release()
		synctest.Wait()
		if w.Code != http.StatusUnauthorized || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("sign-in with the old password: status %d, want 401 and no cookie", w.Code)
		}
		if n := dashboard.Sessions(svc.Dashboard); n != 0 {
			t.Errorf("%d sessions, want 0", n)
		}
	})
}

// If the password changes after it was verified, the verification counts for nothing: it neither
// starts a session nor authorises another change.
func TestVerifiedPasswordExpires(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	ok, checked, err := dashboard.Verify(svc.Dashboard, ctx, dashboard.Account, password)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	now, err := dashboard.SetPassword(svc.Dashboard, ctx, "another one", checked)
	svc.must(err)
	if dashboard.Admit(svc.Dashboard, checked) || dashboard.Sessions(svc.Dashboard) != 0 {
		t.Error("a replaced password started a session")
	}
	if _, err := dashboard.SetPassword(svc.Dashboard, ctx, "a third one", checked); err == nil {
		t.Error("a replaced password authorised a change")
	}
	if !dashboard.Admit(svc.Dashboard, now) {
		t.Error("the current password did not start a session")
	}
	svc.must(svc.Dashboard.UsePassword(ctx, "another one"))
	if _, err := dashboard.SetPassword(svc.Dashboard, ctx, "a third one", now); err == nil {
		t.Error("the dashboard changed a password that a file manages")
	}
}

// When nodes start together, one of them makes the first password. MakePassword on the other nodes
// leaves this password unchanged.
func TestMakePasswordKeepsExisting(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	made, err := svc.Dashboard.MakePassword(ctx)
	if made != "" || err != nil {
		t.Errorf("MakePassword = %q, %v, want no password and no error", made, err)
	}
	if ok, _, err := dashboard.Verify(svc.Dashboard, ctx, dashboard.Account, password); !ok || err != nil {
		t.Errorf("the existing password no longer works: %v", err)
	}
}
