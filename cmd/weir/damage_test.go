package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// damage overwrites the first occurrence of a text in the files that match a pattern. With -bit it
// flips only one bit of the text. With -cut it truncates the file at the text.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	how := ""
	if len(args) == 3 {
		how, args = args[0], args[1:]
	}
	if neg || len(args) != 2 {
		ts.Fatalf("usage: damage [-bit|-cut] FILE TEXT")
	}
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	var b []byte
	at, name := -1, ""
	for i := 0; i < len(names) && at < 0; i++ {
		name = names[i]
		b, err = os.ReadFile(name)
		ts.Check(err)
		at = bytes.Index(b, []byte(args[1]))
	}
	if at < 0 {
		ts.Fatalf("no file %s holds %q", args[0], args[1])
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // the file is changed in place, because a server may have it open
	ts.Check(err)
	defer f.Close()
	spoilt := bytes.Repeat([]byte("#"), len(args[1]))
	switch how {
	case "-bit":
		spoilt = []byte{b[at] ^ 4}
	case "-cut":
		ts.Check(f.Truncate(int64(at)))
		return
	}
	_, err = f.WriteAt(spoilt, int64(at))
	ts.Check(err)
}

// received reads from the last opened subscription until a line contains the text, and prints the
// lines.
func received(ts *testscript.TestScript, neg bool, args []string) {
	bodies := *ts.Value(opened{}).(*[]io.Reader)
	if neg || len(args) != 1 || len(bodies) == 0 {
		ts.Fatalf("usage: received TEXT, after subscribe")
	}
	lines := bufio.NewReader(bodies[len(bodies)-1])
	bodies[len(bodies)-1] = lines
	for {
		line, err := lines.ReadString('\n')
		ts.Check(err)
		io.WriteString(ts.Stdout(), line)
		if strings.Contains(line, args[0]) {
			return
		}
	}
}
