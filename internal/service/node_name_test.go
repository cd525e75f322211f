package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The name of a node is chosen once. A file without a name, as a power cut may have left it, is not
// taken for a name, and is not replaced: under another name, the node would count as a new one.
func TestNodeName(t *testing.T) {
	data := t.TempDir()
	first, err := node(data)
	if err != nil || !strings.HasPrefix(first, "weir-") {
		t.Fatalf("got name %q, %v", first, err)
	}
	if again, err := node(data); again != first || err != nil {
		t.Errorf("second time: got name %q, %v; want %q", again, err, first)
	}
	if err := os.WriteFile(filepath.Join(data, nodeName), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := node(data); err == nil || !strings.Contains(err.Error(), nodeName+" is empty") {
		t.Errorf("without a name in the file: got %q, %v; want an error", name, err)
	}
	if files, err := os.ReadDir(data); len(files) != 1 || err != nil {
		t.Errorf("got %d files, %v; want the file with the name alone", len(files), err)
	}
}
