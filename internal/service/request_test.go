package service_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/service/servicetest"
)

// request sends a request and returns the response and its body.
func request(t *testing.T, method, url, body string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// ask sends a request to a path below /v1, and returns the status and the body of the response.
func ask(t *testing.T, s *servicetest.Service, key, method, path, body string) (int, string) {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
	resp, text := request(t, method, s.HTTP+"/v1"+path, body, header)
	return resp.StatusCode, text
}
