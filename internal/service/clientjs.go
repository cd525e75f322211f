package service

import (
	"net/http"

	"weir/clients/js"
)

// clientJS serves the JavaScript client at /client.js, and its source map at /client.js.map. It
// passes all other requests to the handler next. Requests for the two files need no key and count
// towards no rate limit.
func clientJS(next http.Handler) http.Handler {
	client := js.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/client.js" || r.URL.Path == "/client.js.map" {
			client.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
