package api

import (
	"testing"

	"weir"
)

func FuzzPageToken(f *testing.F) {
	f.Add("project", uint64(7), "AAAA")
	f.Fuzz(func(t *testing.T, project string, before uint64, other string) {
		token := pageToken(weir.ProjectID(project), before)
		if got, ok := parsePageToken(weir.ProjectID(project), token); before != 0 && (!ok || got != before) {
			t.Fatalf("%q parses as %d, %t; want %d", token, got, ok, before)
		}
		if _, ok := parsePageToken(weir.ProjectID(project+"x"), token); ok {
			t.Fatalf("the token %q is accepted for another project", token)
		}
		if before, ok := parsePageToken(weir.ProjectID(project), other); ok && pageToken(weir.ProjectID(project), before) != other {
			t.Fatalf("%q and %q stand for the same position", other, pageToken(weir.ProjectID(project), before))
		}
	})
}
