package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"weir"
	"weir/internal/engine/memory"
)

// The key does not appear in anything that is printed, logged, marshalled or stored.
func TestNothingShowsAKey(t *testing.T) {
	docs := memory.New()
	a := open(t, docs)
	p := project(t, a, "app")
	k, secret, err := a.CreateKey(t.Context(), KeySpec{Project: p.ID, Kind: Live, Name: "canary"})
	if err != nil {
		t.Fatal(err)
	}
	canary := secret.Reveal()
	g := caller(t, a, canary)
	type holder struct {
		secret Secret // unexported: fmt does not call its methods
		Public Secret
	}
	shown := map[string]any{
		"secret": secret, "pointer": &secret, "holder": holder{secret, secret}, "pointer to holder": &holder{secret, secret},
		"slice": []Secret{secret}, "map": map[string]Secret{"k": secret},
		"key": k, "grant": g, "access": a, "entry": a.find(k.ID), "list": a.Keys(""),
	}
	for what, v := range shown {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p"} {
			hides(t, what+" under "+verb, fmt.Sprintf(verb, v), canary)
		}
		for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var b bytes.Buffer
			slog.New(handler(&b)).Info("event", "v", v)
			hides(t, what+" in a log with format "+name, b.String(), canary)
		}
		if b, err := json.Marshal(v); err == nil {
			hides(t, what+" as JSON", string(b), canary)
		}
	}
	if s := fmt.Sprint(secret); s != k.Masked || !strings.HasPrefix(canary, s[:12]) || !strings.HasSuffix(canary, s[15:]) || len(s) != 12+3+4 {
		t.Errorf("masked as %q, want the first 12 and last 4 characters", s)
	}
	var zero Secret
	if zero.Reveal() != "" || fmt.Sprint(zero) != "" {
		t.Error("the zero Secret is not empty")
	}

	stored, err := docs.List(t.Context(), "", "", 100)
	if err != nil || len(stored) != 2 {
		t.Fatal(len(stored), err)
	}
	for _, doc := range stored {
		hides(t, "document", doc.Key+string(doc.Value), canary)
	}
}

// A refusal does not repeat a key that was entered in the wrong place.
func TestRefusalsRepeatNoKey(t *testing.T) {
	a := open(t, store())
	p := project(t, a, "app")
	_, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given)
	if err != nil {
		t.Fatal(err)
	}
	q := project(t, a, "other")
	var refusals []error
	add := func(_ any, err error) { refusals = append(refusals, err) }
	add(a.CreateProject(t.Context(), given))
	add(a.CreateProject(t.Context(), "x"+given+given))
	add(a.Revoke(t.Context(), given))
	add(a.Authenticate([]string{"Basic " + given}))
	add(a.Authenticate([]string{"Bearer " + given + "0"}))
	add(a.ImportKey(t.Context(), KeySpec{Project: q.ID}, given))
	add(a.ImportKey(t.Context(), KeySpec{Project: q.ID}, given+"0"))
	for _, s := range []KeySpec{
		{Project: p.ID, Kind: given}, {Project: given, Kind: Live}, {Project: p.ID, Kind: Live, Name: given},
		{Project: p.ID, Kind: Live, Permissions: []Permission{given}}, {Project: p.ID, Kind: Live, Streams: []weir.StreamID{"a" + given}},
	} {
		_, _, err := a.CreateKey(t.Context(), s)
		refusals = append(refusals, err)
	}
	for i, err := range refusals {
		if err == nil {
			t.Errorf("request %d was not refused", i)
			continue
		}
		hides(t, "a refusal", err.Error(), given)
	}
}

func hides(t *testing.T, what, text, secret string) {
	t.Helper()
	digits := secret[len(livePrefix):]
	for _, s := range []string{digits, strings.ToUpper(digits), fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), digits[3:28]} {
		if strings.Contains(text, s) {
			t.Errorf("%s shows the key: %s", what, text)
		}
	}
}
