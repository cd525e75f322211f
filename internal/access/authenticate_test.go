package access

import (
	"regexp"
	"strings"
	"testing"

	"weir"
)

func TestAuthenticate(t *testing.T) {
	docs := store()
	a := open(t, docs)
	p := project(t, a, "app")
	if _, err := a.ImportKey(t.Context(), KeySpec{Project: p.ID}, given); err != nil {
		t.Fatal(err)
	}
	k, revoked := key(t, a, KeySpec{Project: p.ID, Kind: Test})
	if _, err := a.Revoke(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	digits := given[len(livePrefix):]
	docs.calls.Store(0)
	for _, tc := range []struct {
		what   string
		values []string
		code   weir.Code
	}{
		{"no header", nil, weir.MissingAPIKey},
		{"empty", []string{""}, weir.MissingAPIKey},
		{"only white space, which HTTP/2 lets through", []string{" \t"}, weir.MissingAPIKey},
		{"two headers, both empty", []string{"", ""}, weir.InvalidAPIKey},
		{"two headers, one valid", []string{"Bearer " + given, ""}, weir.InvalidAPIKey},
		{"two headers, both valid", []string{"Bearer " + given, "Bearer " + given}, weir.InvalidAPIKey},
		{"known", []string{"Bearer " + given}, ""},
		{"lower case scheme", []string{"bearer " + given}, ""},
		{"mixed case scheme", []string{"bEaReR " + given}, ""},
		{"white space around the value", []string{" Bearer " + given + "\t"}, ""},
		{"the demo key", []string{"Bearer " + DemoKey}, ""},
		{"revoked", []string{"Bearer " + revoked}, weir.KeyRevoked},
		{"scheme alone", []string{"Bearer"}, weir.InvalidAPIKey},
		{"scheme and space", []string{"Bearer "}, weir.InvalidAPIKey},
		{"key alone", []string{given}, weir.InvalidAPIKey},
		{"another scheme", []string{"Basic dXNlcjpwYXNz"}, weir.InvalidAPIKey},
		{"another scheme of the same length", []string{"Holder " + given}, weir.InvalidAPIKey},
		{"two spaces", []string{"Bearer  " + given}, weir.InvalidAPIKey},
		{"a tab", []string{"Bearer\t" + given}, weir.InvalidAPIKey},
		{"no space", []string{"Bearer" + given}, weir.InvalidAPIKey},
		{"a list", []string{"Bearer " + given + ", Bearer " + given}, weir.InvalidAPIKey},
		{"31 digits", []string{"Bearer " + given[:40]}, weir.InvalidAPIKey},
		{"33 digits", []string{"Bearer " + given + "0"}, weir.InvalidAPIKey},
		{"upper case digits", []string{"Bearer svc_live_" + strings.ToUpper(digits)}, weir.InvalidAPIKey},
		{"a letter above f", []string{"Bearer svc_live_g" + digits[1:]}, weir.InvalidAPIKey},
		{"a letter above f at the end", []string{"Bearer " + given[:40] + "g"}, weir.InvalidAPIKey},
		{"the character before 0", []string{"Bearer svc_live_/" + digits[1:]}, weir.InvalidAPIKey},
		{"the character after 9", []string{"Bearer svc_live_:" + digits[1:]}, weir.InvalidAPIKey},
		{"a NUL", []string{"Bearer svc_live_\x00" + digits[1:]}, weir.InvalidAPIKey},
		{"full-width digits", []string{"Bearer svc_live_" + strings.Repeat("０", 10) + "00"}, weir.InvalidAPIKey},
		{"another prefix", []string{"Bearer svc_prod_" + digits}, weir.InvalidAPIKey},
		{"upper case prefix", []string{"Bearer SVC_live_" + digits}, weir.InvalidAPIKey},
		{"hyphens", []string{"Bearer svc-live-" + digits}, weir.InvalidAPIKey},
		{"unknown", []string{"Bearer svc_live_" + strings.Repeat("0", 32)}, weir.InvalidAPIKey},
		{"the other kind", []string{"Bearer svc_test_" + digits}, weir.InvalidAPIKey},
	} {
		g, err := a.Authenticate(tc.values)
		want(t, tc.what, err, tc.code)
		if (g == nil) != (err != nil) {
			t.Errorf("%s: got grant %v and error %v, want exactly one of them", tc.what, g, err)
		}
		if shaped := tc.what == "unknown" || tc.what == "the other kind"; (err == errUnknown) != shaped {
			t.Errorf("%s: got %v; only well-formed keys may be looked up", tc.what, err)
		}
	}
	if n := docs.calls.Load(); n != 0 {
		t.Errorf("Authenticate made %d calls to the store, want 0", n)
	}
	off := open(t, docs, func(o *Options) { o.Demo = false })
	_, err := off.Authenticate([]string{"Bearer " + DemoKey})
	want(t, "the demo key while the demo is off", err, weir.InvalidAPIKey)
	if off.DemoReader() != nil || a.DemoReader() == nil {
		t.Error("DemoReader must be set if and only if the demo is on")
	}
}

func FuzzAuthenticate(f *testing.F) {
	a := open(f, store())
	p := project(f, a, "app")
	if _, err := a.ImportKey(f.Context(), KeySpec{Project: p.ID}, given); err != nil {
		f.Fatal(err)
	}
	k, revoked := key(f, a, KeySpec{Project: p.ID})
	if _, err := a.Revoke(f.Context(), k.ID); err != nil {
		f.Fatal(err)
	}
	f.Add("Bearer "+given, "", false)
	f.Add("Bearer "+DemoKey, "", false)
	f.Add("Bearer "+revoked, "", false)
	f.Add("bearer\t"+given, "", false)
	f.Add("Bearer "+given, "Bearer "+given, true)
	f.Add("", "", false)
	f.Add(given, "", false)
	f.Add(given[:40]+"g", "", false)
	f.Add(given[:40]+"`", "", false)
	f.Add(given[:9]+"A"+given[10:], "", false)
	f.Add(given[:9]+":"+given[10:], "", false)
	f.Add("svc_prod_"+given[9:], "", false)
	pattern := regexp.MustCompile(`^[ \t]*(?i:bearer) (svc_(live|test)_[0-9a-f]{32})[ \t]*$`)
	f.Fuzz(func(t *testing.T, first, second string, two bool) {
		values := []string{first}
		if two {
			values = append(values, second)
		}
		g, err := a.Authenticate(values)
		match := pattern.FindStringSubmatch(first)
		switch {
		case two && code(t, err) != weir.InvalidAPIKey:
			t.Errorf("two headers: %v, want InvalidAPIKey", err)
		case two:
		case strings.Trim(first, " \t") == "":
			want(t, "empty", err, weir.MissingAPIKey)
		case match == nil:
			want(t, "no match", err, weir.InvalidAPIKey)
		case match[1] == given || match[1] == DemoKey:
			if err != nil || g == nil {
				t.Errorf("a valid key was refused: %v", err)
			}
		case match[1] == revoked:
			want(t, "revoked", err, weir.KeyRevoked)
		default:
			want(t, "unknown", err, weir.InvalidAPIKey)
		}
		if err != nil && g != nil {
			t.Error("got both a grant and an error")
		}
		if kind, ok := kindOf(first); ok != regexp.MustCompile(`^svc_(live|test)_[0-9a-f]{32}$`).MatchString(first) || ok && !strings.Contains(first[:9], string(kind)) {
			t.Errorf("kindOf(%q) = %v, %t", first, kind, ok)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	a := open(b, store())
	p := project(b, a, "app")
	_, secret := key(b, a, KeySpec{Project: p.ID})
	values := []string{"Bearer " + secret}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.Authenticate(values); err != nil {
				b.Fatal(err)
			}
		}
	})
}
