package contract

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Build builds the weir command of this module in dir and returns the path of the binary. If race
// is set, the binary is built with the race detector. Build passes the flags to go build.
func Build(dir string, race bool, flags ...string) (string, error) {
	path := filepath.Join(dir, "weir")
	args := append([]string{"build", "-o", path}, flags...)
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "weir/cmd/weir")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w\n%s", err, out)
	}
	return path, nil
}

// TokensOf returns a function for Target.NewToken. It creates a management token with the weir
// command, and returns the token and a function that revokes it.
func TokensOf(binary, data string) func(testing.TB) (string, func()) {
	return func(t testing.TB) (string, func()) {
		t.Helper()
		var made struct {
			ID    string `json:"id"`
			Token string `json:"token"`
		}
		out, err := exec.Command(binary, "token", "create", "--json", "--data", data).Output()
		if err == nil {
			err = json.Unmarshal(out, &made)
		}
		if err != nil {
			t.Fatalf("weir token create: %v: %s", err, out)
		}
		return made.Token, func() {
			t.Helper()
			if out, err := exec.Command(binary, "token", "revoke", made.ID, "--data", data).CombinedOutput(); err != nil {
				t.Fatalf("weir token revoke: %v: %s", err, out)
			}
		}
	}
}

// KeysOf returns a function for Target.NewKey. It creates a key of the project named
// "a" with the weir command, and returns the key and a function that revokes it. The parameter
// binary is the path of the weir program, and data is the data directory of the server. The server
// must run on this machine.
func KeysOf(binary, data string) func(testing.TB, Key) (string, func()) {
	return func(t testing.TB, k Key) (string, func()) {
		t.Helper()
		args := []string{"key", "create", "--json", "--data", data, "--project", "a", "--kind", k.Kind}
		if k.Permissions != nil {
			args = append(args, "--permissions", strings.Join(k.Permissions, ","))
		}
		if k.Streams != nil {
			args = append(args, "--streams", strings.Join(k.Streams, ","))
		}
		var made struct {
			ID     string `json:"id"`
			Secret string `json:"secret"`
			Key    string `json:"key"`
		}
		out, err := exec.Command(binary, args...).Output()
		if err != nil {
			t.Fatalf("weir %s: %v", strings.Join(args, " "), err)
		}
		if err := json.Unmarshal(out, &made); err != nil {
			t.Fatalf("weir key create: decode output: %v in %s", err, out)
		}
		if made.Secret == "" {
			made.Secret = made.Key
		}
		return made.Secret, func() {
			t.Helper()
			if out, err := exec.Command(binary, "key", "revoke", made.ID, "--data", data).CombinedOutput(); err != nil {
				t.Fatalf("weir key revoke: %v: %s", err, out)
			}
		}
	}
}
