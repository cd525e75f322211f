package main

import (
	"net/http"

	"weir/clients/js"
)

// clientJS serves the JavaScript client at /client.js, and lets next answer everything else. It needs no key, counts for
// nobody, and comes from the binary.
func clientJS(next http.Handler) http.Handler {
	client := js.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/client.js" {
			client.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
