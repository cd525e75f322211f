package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// A gap stays open while the server receives the body of a request that fills the gap (D4). The
// test uses a second stream to find out when the grace period has ended. The gap of the second
// stream opens later. So once a subscriber receives the batch above that gap, the grace period of
// both gaps has ended.
func TestGapStaysOpenUnderASlowBody(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{Args: []string{"--gap-grace", "300ms"}})
	slow, other := s.NewStream(hub.Spec{}), s.NewStream(hub.Spec{})
	post := func(stream any, seq int) int {
		t.Helper()
		resp := do(t, s, "POST", fmt.Sprintf("/v1/streams/%v/%d", stream, seq), "Content-Type: application/json", `{"events":[]}`)
		resp.Body.Close()
		return resp.StatusCode
	}
	post(slow, 1)

	// The server sends 100 Continue once it has accepted the request. Then the client sends the
	// body.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.HTTP, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/streams/%v/2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: 13\r\n\r\n", slow, s.Key)
	answers := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(answers, nil); err != nil || resp.StatusCode != http.StatusContinue {
		t.Fatalf("got %v, %v; want 100 Continue", resp, err)
	}
	io.WriteString(conn, `{"even`)
	post(slow, 3)
	post(other, 1)
	post(other, 3)
	sub := do(t, s, "GET", fmt.Sprintf("/v1/streams/%v?cursor=1", other), "Accept: text/event-stream", "")
	defer sub.Body.Close()
	for lines := bufio.NewScanner(sub.Body); lines.Scan() && lines.Text() != "id: 3"; {
	}
	if got := post(other, 2); got != http.StatusConflict {
		t.Fatalf("the gap of the second stream is not closed: got %d, want 409", got)
	}
	io.WriteString(conn, `ts":[]}`)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted {
		t.Errorf("the slow body got %d %s, want 202", resp.StatusCode, body)
	}
}

// do sends a request and returns the response.
func do(t *testing.T, s *servicetest.Service, method, path, header, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, s.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(header, ": ")
	r.Header.Set(name, value)
	r.Header.Set("Authorization", "Bearer "+s.Key)
	r.Close = true
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
