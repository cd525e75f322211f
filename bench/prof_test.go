package main

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestProfile(t *testing.T) {
	w := workload{512, 1 << 10, 1}
	if s := os.Getenv("W"); s != "" {
		fmt.Sscanf(s, "%d %d %d", &w.Writers, &w.Size, &w.Streams)
	}
	dir := t.TempDir()
	which := os.Getenv("C")
	var c contender
	var err error
	if which == "limit" {
		c, err = newBare(dir+"/f", 1<<30)
	} else {
		c, err = newJournal(dir, which != "grow")
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		r, err := round(c, w, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%+v\n", r)
	}
	if o, ok := c.(*ours); ok {
		fmt.Printf("%+v\n", o.j.Stats())
	}
	c.close()
}
