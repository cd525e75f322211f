// Command tools makes two kinds of files of a release: the lists of modules and the container
// images. The script tools/release runs it.
package main

import (
	"fmt"
	"os"
	"strconv"
)

const usage = `usage:
	tools sbom PROGRAM VERSION
	tools image PROGRAM DOCKERFILE ARCHITECTURE VERSION COMMIT TIME`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

// run writes the file that the arguments describe to the standard output.
func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "sbom":
		return printModules(args[1], args[2])
	case len(args) == 7 && args[0] == "image":
		seconds, err := strconv.ParseInt(args[6], 10, 64)
		if err != nil {
			return fmt.Errorf("TIME: %w", err)
		}
		i := image{program: args[1], dockerfile: args[2], architecture: args[3], version: args[4], commit: args[5], time: seconds}
		return i.write(os.Stdout)
	}
	return fmt.Errorf("wrong arguments\n%s", usage)
}
