package dashboard

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Whoever guesses washes nothing away: guesses are an entry an address and an hour, of a number of their own, and all of them
// are counted, those that had to wait too.
func TestRefusals(t *testing.T) {
	h := newHouse(t)
	ctx := context.Background()
	b := h.signedIn()
	b.post("/dashboard/projects", "name", "audited")
	guesser := h.browser()
	for range maxFailures + 3 {
		guesser.post("/dashboard/sign-in", "name", Account, "password", "guess")
	}
	if text := b.see("/dashboard/audit"); !strings.Contains(text, fmt.Sprintf("%d times since", maxFailures+3)) || !strings.Contains(text, "3 of them unheard") ||
		strings.Count(text, signInRefused) != 1 {
		t.Errorf("the audit log is %s", text)
	}
	for i := range 3 * maxAudit { // an hour and more of it, from everywhere
		h.d.refusals.add(h.clock.now().Add(time.Duration(i)*2*time.Second), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), signInRefused, i%2 == 0)
	}
	if text := b.see("/dashboard/audit?q=audited"); !strings.Contains(text, "project created") {
		t.Error("what was done is washed away")
	}
	if n := len(h.d.searchAudit(signInRefused)); n != maxRefusals {
		t.Errorf("%d refusals", n)
	}

	for i := range 100 {
		h.d.refusals.add(h.clock.now(), netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)), signInRefused, false)
	}
	if list := h.d.searchAudit("2001:db8::/64"); len(list) != 1 || !strings.Contains(list[0].Detail, "100 times") {
		t.Errorf("of one network: %v", list)
	}

	// They are stored by the minute, and when the server stops.
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
		t.Error("they were not stored again, or the log says what was typed")
	}
}

// A refusal is told of before the sign-in that comes after it.
func TestRefusalsBeforeSignIn(t *testing.T) {
	h := newHouse(t)
	h.browser().post("/dashboard/sign-in", "name", Account, "password", "guess")
	h.signedIn()
	if _, err := h.engine.Get(context.Background(), RefusalsKey); err != nil {
		t.Errorf("it is not stored: %v", err)
	}
	log := h.log.String()
	if refused, in := strings.Index(log, signInRefused), strings.Index(log, "signed in"); refused < 0 || in < refused {
		t.Errorf("the log has them in another order: %s", log)
	}
}

// What cannot be read is told of, and keeps nobody from starting.
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
			t.Errorf("the log says nothing of %s", key)
		}
	}
	if n := len(h.d.searchAudit("signed in")); n != 1 {
		t.Error("what can be read is gone too")
	}
	h.clock.advance(coarseEvery)
	h.d.refusals.add(h.clock.now(), netip.MustParseAddr("192.0.2.7"), signInRefused, false)
	h.d.tick(ctx)
	if strings.Contains(h.log.String(), "not stored") {
		t.Errorf("the log: %s", h.log.String())
	}
}
