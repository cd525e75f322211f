package dashboard_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
)

// Guessed passwords cannot push other actions out of the audit log: all guesses from one address
// within an hour share one entry, and the number of these entries has its own limit. Every guess is
// counted, even if it was throttled.
func TestRefusals(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	b := svc.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	guesser := svc.browser()
	for range dashboard.MaxFailures + 3 {
		guesser.post("/dashboard/sign-in", "name", dashboard.Account, "password", "guess")
	}
	if text := b.see("/dashboard/audit"); !strings.Contains(text, fmt.Sprintf("%d times since", dashboard.MaxFailures+3)) || !strings.Contains(text, "3 of them throttled") ||
		strings.Count(text, dashboard.SignInRefused) != 1 {
		t.Errorf("the audit log does not show the guesses as one entry: %s", text)
	}
	for i := range 3 * dashboard.MaxAudit { // guesses over more than an hour, from many addresses
		dashboard.AddRefusal(svc.Dashboard, svc.clock.now().Add(time.Duration(i)*2*time.Second), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), dashboard.SignInRefused, i%2 == 0)
	}
	if text := b.see("/dashboard/audit?q=audited"); !strings.Contains(text, "project created") {
		t.Error("the guesses pushed an action out of the audit log")
	}
	if n := len(dashboard.SearchAudit(svc.Dashboard, dashboard.SignInRefused)); n != dashboard.MaxRefusals {
		t.Errorf("%d entries of refusals, want %d", n, dashboard.MaxRefusals)
	}

	for i := range 100 {
		dashboard.AddRefusal(svc.Dashboard, svc.clock.now(), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)), dashboard.SignInRefused, false)
	}
	if list := dashboard.SearchAudit(svc.Dashboard, "2001:db8::/64"); len(list) != 1 || !strings.Contains(list[0].Detail, "100 times") {
		t.Errorf("guesses from one IPv6 network do not share an entry: %v", list)
	}

	// Refusals are stored every minute and when the server stops.
	svc.clock.advance(dashboard.CoarseEvery)
	dashboard.Tick(svc.Dashboard, ctx)
	stored, err := svc.engine.Get(ctx, dashboard.RefusalsKey)
	svc.must(err)
	dashboard.AddRefusal(svc.Dashboard, svc.clock.now(), netip.MustParseAddr("192.0.2.7"), dashboard.ChangeRefused, false)
	svc.restart()
	if list := dashboard.SearchAudit(svc.Dashboard, "192.0.2.7"); len(list) != 1 || list[0].What != dashboard.ChangeRefused {
		t.Errorf("after a restart: %v", list)
	}
	dashboard.KeepRefusals(svc.Dashboard, ctx)
	again, err := svc.engine.Get(ctx, dashboard.RefusalsKey)
	svc.must(err)
	if again.Revision == stored.Revision || strings.Contains(svc.log(), "guess") {
		t.Error("the refusals were not stored again, or the log contains the guessed password")
	}
}

// Refusals are logged and stored before the successful sign-in that follows them.
func TestRefusalsBeforeSignIn(t *testing.T) {
	svc := startService(t)
	svc.browser().post("/dashboard/sign-in", "name", dashboard.Account, "password", "guess")
	svc.signedIn()
	if _, err := svc.engine.Get(context.Background(), dashboard.RefusalsKey); err != nil {
		t.Errorf("the refusal is not stored: %v", err)
	}
	log := svc.log()
	if refused, in := strings.Index(log, dashboard.SignInRefused), strings.Index(log, "signed in"); refused < 0 || in < refused {
		t.Errorf("the log does not show the refusal before the sign-in: %s", log)
	}
}

// An unreadable document is logged and does not keep the dashboard from opening.
func TestUnreadableDocuments(t *testing.T) {
	svc := startService(t)
	ctx := context.Background()
	svc.signedIn()
	svc.Stop()
	hour := dashboard.FiguresDocument(svc.Dashboard, svc.clock.now().Unix()/3600)
	keys := []string{dashboard.AuditPrefix + "0000000000001-damaged", dashboard.FiguresDocument(svc.Dashboard, svc.clock.now().Unix()/3600-1), dashboard.RefusalsKey}
	for _, key := range keys {
		_, err := svc.engine.Create(ctx, key, []byte("{"))
		svc.must(err)
	}
	if doc, err := svc.engine.Get(ctx, hour); err == nil {
		_, err := svc.engine.Update(ctx, hour, []byte("[]"), doc.Revision)
		svc.must(err)
	}
	svc.restart()
	for _, key := range keys {
		if !strings.Contains(svc.log(), key) {
			t.Errorf("the log does not mention %s", key)
		}
	}
	if n := len(dashboard.SearchAudit(svc.Dashboard, "signed in")); n != 1 {
		t.Error("readable audit entries were lost too")
	}
	svc.clock.advance(dashboard.CoarseEvery)
	dashboard.AddRefusal(svc.Dashboard, svc.clock.now(), netip.MustParseAddr("192.0.2.7"), dashboard.SignInRefused, false)
	dashboard.Tick(svc.Dashboard, ctx)
	if strings.Contains(svc.log(), "failed to store") {
		t.Errorf("storing failed: %s", svc.log())
	}
}
