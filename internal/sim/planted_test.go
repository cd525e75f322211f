package sim

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	planted = flag.String("planted", "", `plant bugs whose name contains this, or "all", and see whether simulations find them`)
	hunting = flag.Duration("hunting", time.Minute, "processor time for each planted bug")
)

// bug is a mistake that TestPlanted builds into the product. In the new text, PLANTED is an
// expression that is true if this bug is switched on. So one build holds all bugs.
type bug struct {
	name     string
	file     string
	old, new string
}

// plantedFile is added to each package with a bug.
const plantedFile = "package %s\n\nimport \"os\"\n\nvar plantedBug = os.Getenv(\"WEIR_PLANTED\")\n"

// TestPlanted shows that simulations find bugs. It plants mistakes that were made before, or could
// be made, and runs simulations until one of them reports a violation:
//
//	go test ./internal/sim -run TestPlanted -v -timeout 0 -planted all
func TestPlanted(t *testing.T) {
	if *planted == "" {
		t.Skip("runs with -planted only")
	}
	binary := build(t, filepath.Join(t.TempDir(), "sim.test"), "-overlay", plant(t))
	for _, b := range bugs {
		if *planted != "all" && !strings.Contains(b.name, *planted) {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			used, runs := time.Duration(0), 0
			for from := uint64(1); used < *hunting; from += 20 {
				found, cpu := hunt(t, binary, b, from)
				used, runs = used+cpu, runs+1
				if found != "" {
					t.Logf("found after %.1f s and at most %d seeds: %.150s", used.Seconds(), runs*20, found)
					return
				}
			}
			t.Errorf("not found in %.0f s and %d seeds", used.Seconds(), runs*20)
		})
	}
}

// hunt runs 20 seeds with a bug. It stops at the first violation.
func hunt(t *testing.T, binary string, b bug, from uint64) (found string, cpu time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	count := uint64(1)
	if strings.HasPrefix(b.name, "jetstream") {
		count = 2 + from/20%2
	}
	args := []string{"-first", fmt.Sprint(from), "-seeds", "20", "-once", "-nodes", fmt.Sprint(count), "-steps", fmt.Sprint(*steps), "-clients", fmt.Sprint(*clients)}
	cmd := child(ctx, binary, args...)
	cmd.Env = append(cmd.Env, "WEIR_PLANTED="+b.name)
	out, err := cmd.CombinedOutput()
	return verdict(string(out), err), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// Every planted bug fits the present code. If one of them does not, TestPlanted cannot plant any.
func TestBugsFit(t *testing.T) {
	args := []string{"build", "-overlay", plant(t)}
	for _, b := range bugs {
		if dir := "../../" + filepath.Dir(b.file); !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// plant writes the source files with all bugs, and returns the file that makes the go command use
// them in place of the real ones (its flag -overlay).
func plant(t *testing.T) string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, b := range bugs {
		path := filepath.Join(root, b.file)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
			dir := filepath.Dir(path)
			texts[filepath.Join(dir, "planted.go")] = fmt.Sprintf(plantedFile, filepath.Base(dir))
		}
		if n := strings.Count(texts[path], b.old); n != 1 {
			t.Errorf("%s: its text occurs %d times in %s", b.name, n, b.file)
		}
		texts[path] = strings.Replace(texts[path], b.old, strings.ReplaceAll(b.new, "PLANTED", fmt.Sprintf("plantedBug == %q", b.name)), 1)
	}
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	for path, text := range texts {
		copied := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay["Replace"])))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][path] = copied
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
