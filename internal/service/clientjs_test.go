package service

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestClientJS(t *testing.T) {
	h := clientJS(http.NotFoundHandler())
	for path, want := range map[string]int{"/client.js": 200, "/client.js.map": 200, "/client.js/": 404, "/clients.js": 404, "/v1/health": 404} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
		if want == 200 && !strings.Contains(w.Body.String(), "last-event-id") {
			t.Errorf("%s is not the client", path)
		}
	}
}
