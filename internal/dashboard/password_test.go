package dashboard

import (
	"strings"
	"testing"
)

func TestPasswordHash(t *testing.T) {
	hash := hashPassword("päßword 1")
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") || hash == hashPassword("päßword 1") {
		t.Errorf("the hash has the wrong parameters, or its salt is not random: %s", hash)
	}
	for password, want := range map[string]bool{"päßword 1": true, "päßword 2": false, "": false} {
		if ok, err := matches(hash, password); ok != want || err != nil {
			t.Errorf("matches(%q) = %t, %v, want %t", password, ok, err, want)
		}
	}
	for _, bad := range []string{"", "x", "$argon2id$v=19$m=1,t=0,p=1$AA$AA", "$argon2i$v=19$m=8,t=1,p=1$AA$AA", hash + "$", strings.Replace(hash, "v=19", "v=18", 1)} {
		if ok, err := matches(bad, "x"); ok || err == nil {
			t.Errorf("the malformed hash %q is accepted", bad)
		}
	}
	if ok, err := matches(unmatchable, "x"); ok || err != nil {
		t.Errorf("matches(unmatchable) = %t, %v, want false and no error", ok, err)
	}
	for password, ok := range map[string]bool{
		"12345678": false, "82736455": false, "bafegudo": true, "bafegud": false, "": false, "éàüöñøçß": true, "bafegud\no": false, "bafegud\xffo": false, strings.Repeat("bafegudo", 128): true, strings.Repeat("bafegudo", 128) + "x": false,
	} {
		if err := CheckPassword(password); (err == nil) != ok {
			t.Errorf("CheckPassword(%q): %v, want acceptable: %t", password, err, ok)
		}
	}
}
