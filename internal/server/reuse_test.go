package server

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// taking is a handler for event loops. It takes the body of each request. It keeps the bodies of
// /keep, and lets the loop use the bodies of /reuse again.
type taking struct {
	http.Handler
	bodies chan []byte
}

func (h *taking) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	body := r.Body.(interface{ Take() []byte }).Take()
	w.Write(body)
	if r.URL.Path == "/reuse" {
		w.(interface{ ReuseBody() }).ReuseBody()
	}
	h.bodies <- body
	return true, true
}

// A loop reads a body into the memory of an earlier one only if the handler has said that it no longer
// uses that one.
func TestReuseBody(t *testing.T) {
	if netHTTPOnly {
		t.Skip("needs event loops")
	}
	s := listen(t)
	h := &taking{Handler: http.HandlerFunc(mirror), bodies: make(chan []byte, 1)}
	s.Serve(h, secured())
	defer s.Shutdown(context.Background())
	c, in := dial(t, s)
	var kept [][]byte
	for i, size := range []int{300, 1, 300, 2000, 4000, 100, 5000, 60_000, 700} {
		for _, path := range []string{"/keep", "/reuse", "/reuse"} {
			text := strings.Repeat(string(rune('a'+i)), size)
			io.WriteString(c, post11(path, "", text))
			expect(t, in, text)
			if b := <-h.bodies; path == "/keep" {
				kept = append(kept, b)
			}
		}
	}
	for i, b := range kept {
		if want := bytes.Repeat([]byte{byte('a' + i)}, len(b)); !bytes.Equal(b, want) {
			t.Errorf("body %d, which the handler kept, has changed", i)
		}
	}
	io.WriteString(c, post11("/reuse", "", strings.Repeat("x", 1000)))
	expect(t, in, strings.Repeat("x", 1000))
	first := <-h.bodies
	io.WriteString(c, post11("/keep", "", strings.Repeat("y", 1000)))
	expect(t, in, strings.Repeat("y", 1000))
	if second := <-h.bodies; &first[0] != &second[0] {
		t.Error("the loop did not use the memory of a body again")
	}
}
