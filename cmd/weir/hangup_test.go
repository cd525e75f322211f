package main

import (
	"fmt"
	"regexp"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

func hangup(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hangup NAME")
	}
	r := ts.Value(servers{}).(map[string]*running)[args[0]]
	if r == nil {
		ts.Fatalf("there is no server %s", args[0])
	}
	r.read++
	ts.Check(r.cmd.Process.Signal(syscall.SIGHUP))
	r.await(ts, regexp.MustCompile(fmt.Sprintf(`(?:"msg":"(?:re-read the configuration"|re-reading the configuration failed)[^\n]*\n(?s:.*?)){%d}`, r.read)))
}
