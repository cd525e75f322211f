package service

import (
	"net/http"

	"weir/clients/js"
)

// clientJS serves the JavaScript client at /client.js and passes all other requests to next. The client
// needs no key and counts towards no rate limit.
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
