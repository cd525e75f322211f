package dashboard

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Guessed passwords cannot push other actions out of the audit log: they share one entry per
// address and hour, and these entries have a limit of their own. Every guess is counted, throttled
// ones included.
func TestRefusals(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	b := h.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	guesser := h.browser()
	for range maxFailures + 3 {
		guesser.post("/dashboard/sign-in", "name", Account, "password", "guess")
	}
	if text := b.see("/dashboard/audit"); !strings.Contains(text, fmt.Sprintf("%d times since", maxFailures+3)) || !strings.Contains(text, "3 of them throttled") ||
		strings.Count(text, signInRefused) != 1 {
		t.Errorf("the audit log does not show the guesses as one entry: %s", text)
	}
	for i := range 3 * maxAudit { // more than an hour of guesses, from many addresses
		h.d.refusals.add(h.clock.now().Add(time.Duration(i)*2*time.Second), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), signInRefused, i%2 == 0)
	}
	if text := b.see("/dashboard/audit?q=audited"); !strings.Contains(text, "project created") {
		t.Error("the guesses pushed an action out of the audit log")
	}
	if n := len(h.d.searchAudit(signInRefused)); n != maxRefusals {
		t.Errorf("%d entries of refusals, want %d", n, maxRefusals)
	}

	for i := range 100 {
		h.d.refusals.add(h.clock.now(), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)), signInRefused, false)
	}
	if list := h.d.searchAudit("2001:db8::/64"); len(list) != 1 || !strings.Contains(list[0].Detail, "100 times") {
		t.Errorf("guesses from one IPv6 network do not share an entry: %v", list)
	}

	// Refusals are stored every minute and when the server stops.
	h.clock.advance(coarseEvery)
	h.d.tick(ctx)
	stored, err := h.engine.Get(ctx, RefusalsKey)
	h.must(err)
	h.d.refusals.add(h.clock.now(), netip.MustParseAddr("192.0.2.7"), changeRefused, false)
	h.d.Close(ctx)
	h.open(ctx)
	if list := h.d.searchAudit("192.0.2.7"); len(list) != 1 || list[0].What != changeRefused {
		t.Errorf("after a restart: %v", list)
	}
	h.d.keepRefusals(ctx)
	again, err := h.engine.Get(ctx, RefusalsKey)
	h.must(err)
	if again.Revision == stored.Revision || strings.Contains(h.log.String(), "guess") {
		t.Error("the refusals were not stored again, or the log contains the guessed password")
	}
}

// Refusals are logged and stored before the successful sign-in that follows them.
func TestRefusalsBeforeSignIn(t *testing.T) {
	h := newHouse(t)
	h.browser().post("/dashboard/sign-in", "name", Account, "password", "guess")
	h.signedIn()
	if _, err := h.engine.Get(context.Background(), RefusalsKey); err != nil {
		t.Errorf("the refusal is not stored: %v", err)
	}
	log := h.log.String()
	if refused, in := strings.Index(log, signInRefused), strings.Index(log, "signed in"); refused < 0 || in < refused {
		t.Errorf("the log does not show the refusal before the sign-in: %s", log)
	}
}

// An unreadable document is logged and does not keep the dashboard from opening.
func TestUnreadableDocuments(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	h.signedIn()
	h.d.Close(ctx)
	hour := h.d.figuresDocument(h.clock.now().Unix() / 3600)
	keys := []string{AuditPrefix + "0000000000001-damaged", h.d.figuresDocument(h.clock.now().Unix()/3600 - 1), RefusalsKey}
	for _, key := range keys {
		_, err := h.engine.Create(ctx, key, []byte("{"))
		h.must(err)
	}
	if doc, err := h.engine.Get(ctx, hour); err == nil {
		_, err := h.engine.Update(ctx, hour, []byte("[]"), doc.Revision)
		h.must(err)
	}
	h.open(ctx)
	for _, key := range keys {
		if !strings.Contains(h.log.String(), key) {
			t.Errorf("the log does not mention %s", key)
		}
	}
	if n := len(h.d.searchAudit("signed in")); n != 1 {
		t.Error("readable audit entries were lost too")
	}
	h.clock.advance(coarseEvery)
	h.d.refusals.add(h.clock.now(), netip.MustParseAddr("192.0.2.7"), signInRefused, false)
	h.d.tick(ctx)
	if strings.Contains(h.log.String(), "failed to store") {
		t.Errorf("storing failed: %s", h.log.String())
	}
}
