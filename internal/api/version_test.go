package api

import "testing"

func TestVersionObject(t *testing.T) {
	want := `{"version":"v1.2.3","commit":"abc","built":"1970-01-01T00:00:00.000Z"}`
	if got := string(versionObject(Options{Version: "v1.2.3", Commit: "abc"})); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
